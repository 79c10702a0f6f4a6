// Element-by-element kernels of torch: CUDALoops.cuh (vectorized, unrolled, legacy),
// DistributionTemplates.h, MultiTensorApply.cuh. Element counts are those of the grid (rounded up
// to whole blocks) unless the launch's arguments told them; broadcast inputs count as full tensors.
#include <algorithm>
#include <array>

#include "cost/launch.h"

namespace prism {
namespace {

constexpr int search_depth = 6;

// Integer instructions an element for the addresses of strided or broadcast tensors (a division by
// a constant per dimension and tensor) and for casts chosen at run time. Fitted to strided adds and
// copies of the A100 trace in docs/accuracy.md, as is the figure of indexed reads and writes.
constexpr double strided_instructions = 44;
constexpr double indexed_instructions = 60;

bool is_number_type(const NameNode& node) noexcept {
  return node.bytes > 0 &&
         (node.kind == NameNode::Kind::builtin || node.kind == NameNode::Kind::name);
}
bool is_integer(const NameNode& node) noexcept {
  return node.dtype == DataType::int32 || node.dtype == DataType::uint32 ||
         node.dtype == DataType::int64 || node.dtype == DataType::uint64 || node.text == "bool";
}

// Walks arguments, then scopes, and keeps the first integer for want of something better.
const NameNode* find_value_type(const KernelName& name, const NameNode& node, int depth,
                                const NameNode*& integer) {
  if (is_number_type(node)) {
    if (!is_integer(node)) return &node;
    if (integer == nullptr) integer = &node;
    return nullptr;
  }
  if (depth == 0) return nullptr;
  for (const NameId id : node.arguments) {
    if (const NameNode* found = find_value_type(name, name[id], depth - 1, integer)) return found;
  }
  if (node.scope == no_name) return nullptr;
  return find_value_type(name, name[node.scope], depth - 1, integer);
}

struct Traffic {
  double in = 0, out = 0;  // bytes an element
};

// Bytes read and written for an element by a functor over `tensors` tensors (0: not told).
Traffic traffic_of(const KernelName& name, const NameNode& functor, std::int64_t tensors) {
  const auto bytes = [&](std::size_t i) {
    const NameNode* node = name.argument(functor, i);
    return node != nullptr ? static_cast<double>(node->bytes) : 0.0;
  };
  if (functor.kind == NameNode::Kind::lambda) {
    Traffic traffic;
    double value = 0;
    for (const NameId id : functor.arguments) {
      const auto size = static_cast<double>(name[id].bytes);
      traffic.in += size;
      if (value == 0 && name[id].text != "bool") value = size;
    }
    if (value == 0 && traffic.in > 0) value = traffic.in / double(functor.arguments.size());
    traffic.out = value > 0 ? value : value_bytes(name, functor, 4);
    constexpr std::array<std::string_view, 7> to_bool = {
        "compare_scalar_kernel",  "isnan_kernel_impl",    "isinf_kernel_impl",
        "logical_not_kernel",     "isneginf_kernel_impl", "isposinf_kernel_impl",
        "logical_not_kernel_cuda"};
    for (const std::string_view text : to_bool) {
      if (name.within(functor, text)) traffic.out = 1;
    }
    if (name.within(functor, "bfloat16_copy_kernel_cuda") ||
        name.within(functor, "float16_copy_kernel_cuda")) {
      traffic.out = 2;
    }
    if (name.within(functor, "float8_copy_kernel_cuda")) traffic.out = 1;
    return traffic;
  }
  if (functor.text == "BinaryFunctor") return {bytes(0) + bytes(1), bytes(2)};
  if (functor.text == "AUnaryFunctor") return {bytes(1), bytes(2)};
  if (functor.text == "BUnaryFunctor") return {bytes(0), bytes(2)};
  const double value = value_bytes(name, functor, 4);
  if (functor.text.starts_with("Fill")) return {0, value};
  const bool binary = functor.text == "CUDAFunctor_add" || functor.text.starts_with("Compare");
  const double inputs = tensors > 0 ? static_cast<double>(tensors - 1) : binary ? 2.0 : 1.0;
  if (functor.text.starts_with("Compare")) return {inputs * value, 1};
  return {inputs * value, value};
}

KernelFamily family_of(const KernelName& name, const NameNode& functor) {
  constexpr std::array<std::string_view, 5> copies = {
      "direct_copy_kernel_cuda", "bfloat16_copy_kernel_cuda", "float16_copy_kernel_cuda",
      "float8_copy_kernel_cuda", "FillFunctor"};
  const bool copy = std::any_of(copies.begin(), copies.end(),
                                [&](std::string_view text) { return name.within(functor, text); });
  return copy ? KernelFamily::copy : KernelFamily::elementwise;
}

KernelWork work_of(const Launch& launch, const NameNode& functor, Traffic traffic,
                   double per_thread) {
  KernelWork work{.family = family_of(launch.name, functor), .known = true};
  work.elements = launch.told() > 0 ? launch.told() : launch.threads * per_thread;
  work.bytes = work.elements * (traffic.in + traffic.out);
  return work;
}

std::int64_t array_length(const KernelName& name, const NameNode* array) {
  const NameNode* length = array != nullptr ? name.argument(*array, 1) : nullptr;
  return length != nullptr && length->kind == NameNode::Kind::literal ? length->value : 0;
}

}  // namespace

double value_bytes(const KernelName& name, const NameNode& node, double otherwise) {
  const NameNode* integer = nullptr;
  const NameNode* found = find_value_type(name, node, search_depth, integer);
  if (found == nullptr) found = integer;
  return found != nullptr ? static_cast<double>(found->bytes) : otherwise;
}

double value_bytes(const Launch& launch, double otherwise) {
  return launch.name.parsed() ? value_bytes(launch.name, launch.name.root(), otherwise) : otherwise;
}

// vectorized_elementwise_kernel<vec, F, array<char*, n>[, bool]> and
// unrolled_elementwise_kernel<F, array<char*, n>[, elements a thread], ...>.
KernelWork elementwise_work(const Launch& launch) {
  const KernelName& name = launch.name;
  const bool vectorized = name.base().starts_with("vectorized");
  const NameNode* functor = name.argument(vectorized ? 1 : 0);
  const NameNode* array = name.argument(vectorized ? 2 : 1);
  if (functor == nullptr || array == nullptr) return {.family = KernelFamily::elementwise};
  Traffic traffic = traffic_of(name, *functor, array_length(name, array));

  double per_thread = 4;
  if (vectorized) {
    // torch since 2.7 (vectors of 8; since 2.10 a fourth argument): 8 elements a thread, or 16
    // where an element moves one byte in all; earlier 4.
    const bool recent = name.root().arguments.size() > 3 || name.number(0, 4) > 4;
    if (recent) per_thread = traffic.in + traffic.out <= 1 ? 16 : 8;
    return work_of(launch, *functor, traffic, per_thread);
  }
  per_thread = static_cast<double>(std::clamp<std::int64_t>(name.number(2, 4), 1, 64));
  bool casts = false;
  for (const NameId id : name.root().arguments) {
    if (name[id].text == "LoadWithCast") casts = true;
  }
  if (casts) {
    // The functor computes in the output's type; the name does not hold the input's. Assumed: a
    // cast between 4 and 2 bytes, as mixed precision does.
    const double inputs = std::max<double>(1, double(array_length(name, array) - 1));
    traffic.in = inputs * (traffic.out == 2 ? 4 : traffic.out == 4 ? 2 : 4);
  }
  KernelWork work = work_of(launch, *functor, traffic, per_thread);
  work.assumed = casts;
  if (casts) work.integers = work.elements * strided_instructions;
  return work;
}

// elementwise_kernel<threads, elements a thread, F> and its kin; F is a lambda of
// gpu_kernel_impl<functor> or stands in a function that names the element type.
KernelWork legacy_elementwise_work(const Launch& launch) {
  const KernelName& name = launch.name;
  const bool sized =
      name.argument(0) != nullptr && name.argument(0)->kind == NameNode::Kind::literal;
  const NameNode* lambda = name.argument(sized ? 2 : 1);
  if (lambda == nullptr) return {.family = KernelFamily::elementwise};
  const double per_thread =
      sized ? static_cast<double>(std::clamp<std::int64_t>(name.number(1, 4), 1, 64)) : 1.0;

  for (const NameNode* at = lambda; at->scope != no_name;) {
    at = &name[at->scope];
    const NameNode* functor = name.argument(*at, 0);
    if (at->text.starts_with("gpu_kernel_impl") && functor != nullptr) {
      KernelWork work = work_of(launch, *functor, traffic_of(name, *functor, 0), per_thread);
      work.integers = work.elements * strided_instructions;
      return work;
    }
  }
  const double value = value_bytes(name, *lambda, 4);
  if (name.base() == "elementwise_kernel_with_index") {  // one output, computed from its index
    return work_of(launch, *lambda, {0, value}, per_thread);
  }
  // Reads and writes what it moves; the index is as good as free, one for a row.
  KernelWork work = work_of(launch, *lambda, {value, value}, per_thread);
  if (name.base() == "index_elementwise_kernel" ||
      name.base() == "_scatter_gather_elementwise_kernel") {
    work.family = KernelFamily::embedding;
    work.integers = work.elements * indexed_instructions;
  }
  return work;
}

// distribution_elementwise_grid_stride_kernel<accumulator, elements a thread, F, ...> writes its
// output; fused_dropout_kernel_vec<T, accumulator, index, dims, vector, mask> reads its input and
// writes output and mask. Both limit the grid to the device, so that where the arguments did not
// tell the count, the grid's is a lower bound.
KernelWork random_work(const Launch& launch) {
  const KernelName& name = launch.name;
  KernelWork work{.family = KernelFamily::random, .known = true, .assumed = launch.told() <= 0};
  const bool dropout = name.base().starts_with("fused_dropout");
  const NameNode* typed = name.argument(dropout ? 0 : 2);
  const double value = typed != nullptr ? value_bytes(name, *typed, 4) : 4;
  const double per_thread =
      static_cast<double>(std::clamp<std::int64_t>(name.number(dropout ? 4 : 1, 1), 1, 16));
  work.elements = launch.told() > 0 ? launch.told() : launch.threads * per_thread;
  work.bytes = work.elements * (dropout ? 2 * value + 1 : value);
  return work;
}

// multi_tensor_apply_kernel<Metadata<depth>, Functor<T, depth, read, written>, ...>: a block does a
// chunk of 65,536 elements of one tensor, so a tensor counts in whole chunks.
KernelWork multi_tensor_work(const Launch& launch) {
  constexpr double chunk = 65536;
  const KernelName& name = launch.name;
  const NameNode* metadata = name.argument(0);
  const NameNode* functor = name.argument(1);
  if (metadata == nullptr || functor == nullptr) return {.family = KernelFamily::optimizer};
  double depth = 1;
  for (const NameId id : metadata->arguments) {  // the last literal: <4>, <float, 3>
    if (name[id].kind == NameNode::Kind::literal) {
      depth = static_cast<double>(std::clamp<std::int64_t>(name[id].value, 1, 8));
    }
  }
  const std::string_view text = functor->text;
  const double value = value_bytes(name, *functor, 4);
  KernelWork work{.family = KernelFamily::optimizer, .known = true};
  double read = depth, written = 1;
  std::array<std::int64_t, 3> lists{};  // <T, depth, lists read, list written>
  std::size_t numbers = 0;
  for (const NameId id : functor->arguments) {
    if (name[id].kind == NameNode::Kind::literal && numbers < lists.size()) {
      lists[numbers++] = name[id].value;
    }
  }
  if (text.starts_with("FusedAdam") || text == "AdamFunctor" || text.starts_with("FusedSgd") ||
      text.starts_with("FusedAdagrad")) {
    written = depth - 1;  // everything but the gradients
  } else if (text.find("Norm") != std::string_view::npos) {
    work.family = KernelFamily::reduction;
    written = 0;
  } else if (text.starts_with("Zero")) {
    work.family = KernelFamily::copy;
    read = 0;
  } else if (text.starts_with("Copy")) {
    work.family = KernelFamily::copy;
    const NameNode* source = name.argument(*functor, 1);  // CopyFunctor<to, from, ...>
    read = source != nullptr && source->bytes > 0 ? source->bytes / value : 1;
    written = 1;
  } else if (numbers == lists.size()) {
    read = static_cast<double>(std::clamp<std::int64_t>(lists[1], 0, 8));
  }
  work.elements = launch.told() > 0 ? launch.told() : launch.blocks * chunk;
  work.bytes = work.elements * value * (read + written);
  return work;
}

}  // namespace prism
