#include "cost/launch_counts.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

#include "cost/kernel_name.h"

namespace prism {
namespace {

constexpr int last = -1;
constexpr int none = -2;

// Parameters that hold the counts, by position; `last`: the last integer among them.
struct Rule {
  std::string_view base;
  int first = none;
  int second = none;
  bool product = false;  // the count is the product of both
  bool prefix = false;
};

constexpr std::array rules = {
    Rule{"vectorized_elementwise_kernel", 0},
    Rule{"unrolled_elementwise_kernel", 0},
    Rule{"unrolled_elementwise_kernel_for_multi_outputs", 0},
    Rule{"elementwise_kernel", 0},
    Rule{"elementwise_kernel_with_index", 0},
    Rule{"index_elementwise_kernel", 0},
    Rule{"_scatter_gather_elementwise_kernel", 0},
    Rule{"distribution_elementwise_grid_stride_kernel", 0},
    Rule{"fused_dropout_kernel_vec", 3},
    Rule{"fused_dropout_kernel", 3},
    Rule{"roll_cuda_kernel", 2},
    Rule{"vectorized_layer_norm_kernel", 0},
    Rule{"RowwiseMomentsCUDAKernel", 0},
    Rule{"LayerNormForwardCUDAKernel", 0},
    Rule{"layer_norm_grad_input_kernel_vectorized", last},
    Rule{"layer_norm_grad_input_kernel", last},
    Rule{"GammaBetaBackward", 0, 1, false, true},
    Rule{"GammaBeta1dBackwardCUDAKernel", 0, 1, false, true},
    Rule{"cunn_SoftMax", last, none, false, true},
    Rule{"softmax_warp_forward", 2, 4},
    Rule{"softmax_warp_backward", 3, 5},
    Rule{"vectorized_gather_kernel", 3, 4},
    Rule{"indexSelectLargeIndex", 5},
    Rule{"im2col_kernel", 4, 5, true},
    Rule{"embedding_backward_feature_kernel", 3, 4, true},
    Rule{"compute_grad_weight", 3, 4, true},
};

const Rule* find_rule(std::string_view base) noexcept {
  for (const Rule& rule : rules) {
    if (rule.base == base || (rule.prefix && base.starts_with(rule.base))) return &rule;
  }
  return nullptr;
}

// Bytes of an integer parameter, 0 for anything else.
std::uint8_t integer_bytes(const KernelName& name, std::size_t parameter) {
  if (parameter >= name.parameters().size() || parameter > 250) return 0;
  const NameNode* type = &name[name.parameters()[parameter]];
  if (type->kind == NameNode::Kind::parameter && type->value >= 0) {
    type = name.argument(static_cast<std::size_t>(type->value));
  }
  const bool integer = type != nullptr && type->kind == NameNode::Kind::builtin &&
                       (type->dtype == DataType::int32 || type->dtype == DataType::uint32 ||
                        type->dtype == DataType::int64 || type->dtype == DataType::uint64);
  return integer ? static_cast<std::uint8_t>(type->bytes) : std::uint8_t{0};
}

template <class T>
T load(const void* address, std::size_t offset = 0) noexcept {
  T value;
  std::memcpy(&value, static_cast<const std::byte*>(address) + offset, sizeof value);
  return value;
}

constexpr std::int64_t most = std::int64_t{1} << 53;

}  // namespace

LaunchCounts::LaunchCounts(std::string_view mangled_name) {
  const KernelName name(mangled_name);
  if (!name.parsed()) return;
  const std::string_view base = name.base();
  if (base == "reduce_kernel" && name.parameters().size() == 1) {
    how_ = How::reduction;
    return;
  }
  if (base.starts_with("CatArrayBatchedCopy")) {  // <element, index, dims, slots, ...>
    const NameNode* index = name.argument(1);
    const std::int64_t slots = name.number(3, 0);
    if (index == nullptr || index->dtype != DataType::uint32 || slots < 1 || slots > 1024) return;
    slots_ = static_cast<std::uint32_t>(slots);
    how_ = How::concatenation;
    return;
  }
  if (base == "multi_tensor_apply_kernel") {
    set_tensor_lists(name);
    return;
  }
  const Rule* rule = find_rule(base);
  if (rule == nullptr) return;
  const auto field = [&](int position) -> Field {
    if (position == none) return {};
    if (position != last) {
      const auto parameter = static_cast<std::size_t>(position);
      return {static_cast<std::uint8_t>(position), integer_bytes(name, parameter)};
    }
    for (std::size_t i = std::min<std::size_t>(name.parameters().size(), 250); i-- > 0;) {
      if (const std::uint8_t bytes = integer_bytes(name, i)) {
        return {static_cast<std::uint8_t>(i), bytes};
      }
    }
    return {};
  };
  first_ = field(rule->first);
  second_ = field(rule->second);
  const bool whole = first_.bytes > 0 && (rule->second == none || second_.bytes > 0);
  if (whole) how_ = rule->product ? How::product : How::numbers;
}

std::int64_t LaunchCounts::number(const Field& field, const void* const* arguments) noexcept {
  if (field.bytes == 0 || arguments[field.parameter] == nullptr) return 0;
  const void* address = arguments[field.parameter];
  const std::int64_t value =
      field.bytes == 4 ? load<std::int32_t>(address) : load<std::int64_t>(address);
  return std::clamp<std::int64_t>(value, 0, most);
}

void LaunchCounts::read(const void* const* arguments, KernelShape& shape) const noexcept {
  if (how_ == How::nothing || arguments == nullptr) return;
  switch (how_) {
    case How::nothing:
      return;
    case How::numbers:
      shape.gemm.n = number(first_, arguments);
      shape.gemm.k = number(second_, arguments);
      return;
    case How::product: {
      const std::int64_t a = number(first_, arguments);
      const std::int64_t b = number(second_, arguments);
      shape.gemm.n = b > 0 && a > most / b ? most : a * b;
      return;
    }
    case How::reduction:
      if (arguments[0] != nullptr) read_reduction(arguments[0], shape);
      return;
    case How::concatenation:
      if (arguments[1] != nullptr) {
        read_concatenation(arguments[1], shape);
      }
      return;
    case How::tensor_lists:
      if (arguments[0] != nullptr) read_tensor_lists(arguments[0], shape);
      return;
  }
}

// ReduceOp starts with the operation and its identity, whose sizes depend on the reduction; then
// come 14 integers (Reduce.cuh, ReduceConfig): bytes of an accumulator, inputs of an output,
// outputs, two steps, blocks an output, five multipliers, block width and height, threads. Four of
// them repeat the launch, so the integers are looked for and believed only where those agree.
void LaunchCounts::read_reduction(const void* operation, KernelShape& shape) noexcept {
  const auto repeats = [](std::int32_t figure, std::uint32_t launch) {
    return std::int64_t{figure} == std::int64_t{launch};
  };
  for (std::size_t offset = 0; offset <= 48; offset += 4) {
    const auto figure = [&](std::size_t i) {
      return load<std::int32_t>(operation, offset + 4 * i);
    };
    const bool agrees = figure(0) > 0 && figure(0) <= 32 && figure(1) > 0 && figure(2) > 0 &&
                        repeats(figure(5), shape.grid[1]) && repeats(figure(11), shape.block[0]) &&
                        repeats(figure(12), shape.block[1]) &&
                        repeats(figure(13), shape.block[0] * shape.block[1]);
    if (!agrees) continue;
    shape.gemm.n = std::int64_t{figure(1)} * figure(2);
    shape.gemm.k = figure(2);
    return;
  }
}

// CatArrInputTensorMetadata (Shape.cu): addresses of the inputs, then of each input its start along
// the joined dimension, its extent there, and its element count. Starts are running sums.
void LaunchCounts::read_concatenation(const void* inputs, KernelShape& shape) const noexcept {
  const std::uint32_t count = shape.grid[1];
  if (count == 0 || count > slots_) return;
  const std::size_t starts = std::size_t{8} * slots_;
  const std::size_t extents = starts + std::size_t{4} * slots_;
  const std::size_t counts = extents + std::size_t{4} * slots_;
  std::uint32_t expected = load<std::uint32_t>(inputs, starts);
  std::int64_t total = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::size_t at = std::size_t{4} * i;
    if (load<std::uint32_t>(inputs, starts + at) != expected) return;
    expected += load<std::uint32_t>(inputs, extents + at);
    total += load<std::uint32_t>(inputs, counts + at);
  }
  shape.gemm.n = total;
}

// {Fused,}*TensorList*Metadata<[scalar,] lists> (MultiTensorApply.cuh): addresses of each list's
// tensors, then element counts, then (fused: pointers to step counts; scalar lists: scalars), then
// of each block its tensor (2 bytes) and its chunk of 65,536 elements
// (4 bytes). Sizes are those of builds for CUDA 13, the only ones the virtual GPU takes.
void LaunchCounts::set_tensor_lists(const KernelName& name) {
  const NameNode* metadata = name.argument(0);
  if (metadata == nullptr || metadata->arguments.empty()) return;
  const NameNode& lists = name[metadata->arguments.back()];
  if (lists.kind != NameNode::Kind::literal || lists.value < 1 || lists.value > 5) return;
  constexpr std::array<std::uint32_t, 5> room = {770, 448, 336, 252, 210};
  constexpr std::array<std::uint32_t, 5> room_with_scalars = {672, 448, 336, 252, 210};
  const auto i = static_cast<std::size_t>(lists.value - 1);
  slots_ = room[i];
  if (metadata->text == "FusedOptimizerTensorListMetadata") {
    extra_bytes_ = 8;
  } else if (metadata->text == "TensorListScalarListMetadata") {
    slots_ = room_with_scalars[i];
    extra_bytes_ = name[metadata->arguments.front()].bytes;
    if (extra_bytes_ == 0) return;
  } else if (metadata->text != "TensorListMetadata") {
    return;
  }
  lists_ = static_cast<std::uint32_t>(lists.value);
  how_ = How::tensor_lists;
}

void LaunchCounts::read_tensor_lists(const void* metadata, KernelShape& shape) const noexcept {
  constexpr std::uint32_t most_blocks = 2240;
  constexpr std::int64_t chunk_size = 65536;
  const std::uint32_t blocks = shape.grid[0];
  if (blocks == 0 || blocks > most_blocks) return;
  const std::size_t counts = std::size_t{8} * lists_ * slots_;
  const std::size_t tensors = counts + std::size_t{8 + extra_bytes_} * slots_;
  const std::size_t chunks = tensors + std::size_t{2} * most_blocks;
  std::int64_t total = 0;
  std::uint32_t tensor = 0;
  std::int64_t next = load<std::int32_t>(metadata, chunks);
  for (std::uint32_t block = 0; block < blocks; ++block) {
    const auto of = load<std::uint16_t>(metadata, tensors + std::size_t{2} * block);
    const auto chunk = load<std::int32_t>(metadata, chunks + std::size_t{4} * block);
    if (of == tensor + 1 && of < slots_) {
      tensor = of;
      next = 0;
    }
    // Chunks of a tensor follow one another; anything else is not the structure that was expected.
    const auto count = load<std::int64_t>(metadata, counts + std::size_t{8} * tensor);
    const std::int64_t left = count - chunk * chunk_size;
    if (of != tensor || chunk != next || chunk < 0 || left <= 0) return;
    total += std::min(chunk_size, left);
    ++next;
  }
  shape.gemm.n = total;
}

}  // namespace prism
