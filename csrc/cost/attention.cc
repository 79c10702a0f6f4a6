// Attention kernels: FlashAttention-2 as torch ships it (pytorch_flash) and the memory-efficient
// kernels (fmha_cutlass). The grid tells query blocks (backward: key blocks), batch and heads, the
// traits tell head size and block sizes. The other sequence length is not in the launch: both are
// taken as equal (self-attention). With a causal mask half of the products are needed.
#include <algorithm>
#include <string_view>

#include "cost/launch.h"

namespace prism {
namespace {

constexpr double forward_products = 2;   // q k^T, p v
constexpr double backward_products = 5;  // q k^T again, dv, dp, dq, dk

double literal(const KernelName& name, const NameNode& node, std::size_t i, double otherwise) {
  const NameNode* argument = name.argument(node, i);
  const bool number = argument != nullptr && argument->kind == NameNode::Kind::literal;
  return number ? static_cast<double>(std::clamp<std::int64_t>(argument->value, 0, 1 << 16))
                : otherwise;
}

// The traits among the kernel's arguments: <head size, block of queries, block of keys, ...>.
const NameNode* traits_of(const KernelName& name) {
  if (!name.parsed()) return nullptr;
  for (const NameId id : name.root().arguments) {
    if (name[id].text.starts_with("Flash_")) return &name[id];
  }
  return nullptr;
}

DataType math_of(const KernelName& name, const NameNode& traits) {
  for (const NameId id : traits.arguments) {
    if (name[id].dtype == DataType::bfloat16) return DataType::bfloat16;
  }
  return DataType::float16;
}

KernelWork attention(KernelFamily family, DataType math, double sequence, double head_size,
                     double heads, bool causal, double size) {
  const bool backward = family == KernelFamily::attention_backward;
  KernelWork work{.family = family, .math = math, .known = true, .assumed = true};
  const double products = backward ? backward_products : forward_products;
  work.operations = 2.0 * products * sequence * sequence * head_size * heads * (causal ? 0.5 : 1.0);
  work.elements = sequence * head_size * heads;
  // Forward: q, k, v read, o written. Backward: q, k, v, do read, dk, dv written, dq accumulated in
  // fp32.
  work.bytes = work.elements * (backward ? 6.0 * size + 8.0 : 4.0 * size);
  return work;
}

}  // namespace

// flash_fwd_kernel<traits, dropout, causal, ...> on (query blocks, batch, heads);
// flash_fwd_splitkv_kernel<traits, causal, local, alibi, even MN, even K, softcap, split, append>
// on (query blocks, splits, batch * heads) when split, else as above.
KernelWork flash_forward_work(const Launch& launch) {
  const KernelName& name = launch.name;
  const NameNode* traits = traits_of(name);
  if (traits == nullptr) return {.family = KernelFamily::attention};
  const bool split_kernel = name.base() == "flash_fwd_splitkv_kernel";
  const bool split = split_kernel && name.number(7, 0) != 0;
  const bool causal = name.number(split_kernel ? 1 : 2, 0) != 0;
  const auto& grid = launch.shape.grid;
  const double heads = split ? grid[2] : double{1} * grid[1] * grid[2];
  return attention(KernelFamily::attention, math_of(name, *traits),
                   grid[0] * literal(name, *traits, 1, 128), literal(name, *traits, 0, 128), heads,
                   causal, 2);
}

// flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<traits, dropout, causal, ...> on (key blocks, batch,
// heads).
KernelWork flash_backward_work(const Launch& launch) {
  const KernelName& name = launch.name;
  const NameNode* traits = traits_of(name);
  if (traits == nullptr) return {.family = KernelFamily::attention_backward};
  const auto& grid = launch.shape.grid;
  return attention(KernelFamily::attention_backward, math_of(name, *traits),
                   grid[0] * literal(name, *traits, 2, 128), literal(name, *traits, 0, 128),
                   double{1} * grid[1] * grid[2], name.number(2, 0) != 0, 2);
}

// The small kernels around them, on (query blocks, batch, heads): dot(do, o) reads both; convert
// reads fp32 sums and writes dq (or dk, dv); combine adds the splits' partial outputs.
KernelWork flash_aside_work(const Launch& launch) {
  const KernelName& name = launch.name;
  const bool combine = name.base() == "flash_fwd_splitkv_combine_kernel";
  KernelWork work{.family = combine ? KernelFamily::attention : KernelFamily::attention_backward};
  const NameNode* traits = traits_of(name);
  if (traits == nullptr) return work;
  work.known = true;
  const double head_size = literal(name, *traits, 0, 128);
  if (combine) {  // <traits, rows a block, log2 of the splits, ...>
    const double splits =
        static_cast<double>(std::int64_t{1} << std::clamp<std::int64_t>(name.number(2, 1), 0, 10));
    work.elements = launch.blocks *
                    static_cast<double>(std::max<std::int64_t>(name.number(1, 4), 1)) * head_size;
    work.bytes = work.elements * (4.0 * splits + 2.0);
    return work;
  }
  work.elements = launch.blocks * literal(name, *traits, 1, 128) * head_size;
  work.bytes = work.elements * (name.base() == "flash_bwd_dot_do_o_kernel" ? 4.0 : 6.0);
  return work;
}

// fmha_cutlass{F,B}_<type>_aligned_<queries>x<keys>[_k<head size>]... on (blocks, heads, batch).
// The mask is a run-time parameter: taken as full.
KernelWork cutlass_attention_work(const Launch& launch) {
  const std::string_view base = launch.name.base();
  const bool backward = base.starts_with("fmha_cutlassB");
  const KernelFamily family = backward ? KernelFamily::attention_backward : KernelFamily::attention;
  const std::size_t mark = base.find("_aligned_");
  if (mark == std::string_view::npos) return {.family = family};
  std::size_t i = mark + 9;
  const auto number = [&] {
    double value = 0;
    for (; i < base.size() && base[i] >= '0' && base[i] <= '9'; ++i) {
      value = std::min(65536.0, value * 10 + (base[i] - '0'));
    }
    return value;
  };
  const double queries = number();
  if (i >= base.size() || base[i] != 'x') return {.family = family};
  ++i;
  const double keys = number();
  double head_size = keys;
  const std::size_t limit = base.find("_k", i);
  if (limit != std::string_view::npos) {
    i = limit + 2;
    head_size = number();
  }
  if (base.find("_gmem") != std::string_view::npos || head_size > 256) head_size = 256;
  const bool bf16 = base.find("_bf16_") != std::string_view::npos;
  const bool fp32 = base.find("_f32_") != std::string_view::npos;
  const DataType math = bf16 ? DataType::bfloat16 : fp32 ? DataType::float32 : DataType::float16;
  const auto& grid = launch.shape.grid;
  return attention(family, math, grid[0] * (backward ? keys : queries), head_size,
                   double{1} * grid[1] * grid[2], false, fp32 ? 4 : 2);
}

}  // namespace prism
