#include "cost/work.h"

#include <algorithm>
#include <array>

#include "cost/launch.h"
#include "cost/rows.h"

namespace prism {
namespace {

using Model = KernelWork (*)(const Launch&);

// Tensors of `value_bytes` that each element reads and writes, `extra` bytes beside, elements a
// thread: for kernels whose grid covers their elements.
template <KernelFamily family, int tensors, int extra = 0, int per_thread = 1>
KernelWork covered(const Launch& launch) {
  KernelWork work{.family = family, .known = true};
  work.elements = launch.told() > 0 ? launch.told() : launch.threads * per_thread;
  work.bytes = work.elements * (tensors * value_bytes(launch, 4) + extra);
  return work;
}

// indexSelect{Large,Small}Index<T, ...>: a grid limited to the device; told: elements. Integer
// instructions fitted to one kernel of the A100 trace in docs/accuracy.md.
KernelWork index_select_work(const Launch& launch) {
  KernelWork work = covered<KernelFamily::embedding, 2>(launch);
  work.integers = work.elements * 120;
  work.assumed = launch.told() <= 0;
  return work;
}

// One small block or grid of bookkeeping: the floor says it all.
template <KernelFamily family>
KernelWork bookkeeping(const Launch& launch) {
  KernelWork work{.family = family, .known = true};
  work.elements = launch.threads;
  work.bytes = launch.threads * 8;
  return work;
}

// triu_tril_kernel<T, index, upper, elements a thread, in place>
KernelWork triangle_work(const Launch& launch) {
  KernelWork work{.family = KernelFamily::elementwise, .known = true};
  const double per_thread =
      static_cast<double>(std::clamp<std::int64_t>(launch.name.number(3, 1), 1, 64));
  work.elements = launch.threads * per_thread;
  work.bytes = work.elements * 2 * value_bytes(launch, 4);
  return work;
}

// CatArrayBatchedCopy*<T, ...> on (blocks, inputs): the grid is limited to the device, so that
// where the arguments did not tell the element count, the grid's is a lower bound.
KernelWork cat_work(const Launch& launch) {
  const KernelName& name = launch.name;
  KernelWork work{.family = KernelFamily::copy, .known = true, .assumed = launch.told() <= 0};
  const double value = value_bytes(launch, 4);
  const bool vectorized = name.base().find("vectorized") != std::string_view::npos ||
                          name.base().find("aligned16") != std::string_view::npos;
  const double per_thread = vectorized ? 16 / value : 1;
  work.elements = launch.told() > 0 ? launch.told() : launch.threads * per_thread;
  work.bytes = 2 * work.elements * value;
  return work;
}

// vectorized_gather_kernel<alignment, index> on (indices, parts of a row): each thread moves one
// vector. Told: indices, bytes of a row.
KernelWork gather_work(const Launch& launch) {
  KernelWork work{.family = KernelFamily::embedding, .known = true};
  const double vector =
      static_cast<double>(std::clamp<std::int64_t>(launch.name.number(0, 16), 1, 16));
  const bool told = launch.told() > 0 && launch.told_second() > 0;
  const double moved = told ? launch.told() * launch.told_second() : launch.threads * vector;
  work.elements = moved;  // bytes: the kernel knows no element type
  work.bytes = 2 * moved;
  return work;
}

// As covered(), where a grid limited to the device or a window's overlap hides the count.
template <KernelFamily family, int tensors, int extra = 0>
KernelWork assumed_covered(const Launch& launch) {
  KernelWork work = covered<family, tensors, extra>(launch);
  work.assumed = true;
  return work;
}

// im2col_kernel<T>: a thread reads an element and writes its window. Told: elements of a window.
KernelWork im2col_work(const Launch& launch) {
  KernelWork work{.family = KernelFamily::copy, .known = true, .assumed = launch.told() <= 0};
  work.elements = launch.threads * std::max(1.0, launch.told());
  work.bytes = (work.elements + launch.threads) * value_bytes(launch, 4);
  return work;
}

// chunk_cat_cuda_kernel<to, from> and split_with_sizes_copy_out_contiguous_no_cast_kernel: a thread
// writes 16 bytes a round. Large copies take more rounds, so that the grid's is a lower bound.
KernelWork chunk_copy_work(const Launch& launch) {
  KernelWork work{.family = KernelFamily::copy, .known = true, .assumed = true};
  const NameNode* to = launch.name.argument(0);
  const NameNode* from = launch.name.argument(1);
  const bool typed = to != nullptr && from != nullptr && to->bytes > 0 && from->bytes > 0;
  const double written = launch.threads * 16;
  work.elements = typed ? written / to->bytes : written;
  work.bytes = written + (typed ? work.elements * from->bytes : written);
  return work;
}

struct Rule {
  std::string_view base;
  Model model;
  bool prefix = false;
};

using F = KernelFamily;
constexpr std::array rules = {
    Rule{"vectorized_elementwise_kernel", elementwise_work},
    Rule{"unrolled_elementwise_kernel", elementwise_work},
    Rule{"elementwise_kernel", legacy_elementwise_work},
    Rule{"elementwise_kernel_with_index", legacy_elementwise_work},
    Rule{"index_elementwise_kernel", legacy_elementwise_work},
    Rule{"_scatter_gather_elementwise_kernel", legacy_elementwise_work},
    Rule{"multi_tensor_apply_kernel", multi_tensor_work},
    Rule{"lpnorm_cleanup", bookkeeping<F::reduction>},
    Rule{"reduce_kernel", reduce_work},
    Rule{"distribution_elementwise_grid_stride_kernel", random_work},
    Rule{"fused_dropout_kernel", random_work, true},
    Rule{"randperm_handle_duplicate_keys_kernel", covered<F::random, 1>},
    // copies
    Rule{"CatArrayBatchedCopy", cat_work, true},
    Rule{"chunk_cat_cuda_kernel", chunk_copy_work},
    Rule{"split_with_sizes_copy_out_contiguous_no_cast_kernel", chunk_copy_work},
    Rule{"triu_tril_kernel", triangle_work},
    Rule{"roll_cuda_kernel", covered<F::copy, 2>},
    Rule{"upsample_", covered<F::elementwise, 2>, true},
    // Windows: a thread an element; only im2col's window is read. Indices: 8 bytes.
    Rule{"im2col_kernel", im2col_work},
    Rule{"col2im_kernel", assumed_covered<F::copy, 2>},
    Rule{"max_pool_", assumed_covered<F::elementwise, 2, 8>, true},
    Rule{"avg_pool", assumed_covered<F::elementwise, 2>, true},
    Rule{"adaptive_average_", assumed_covered<F::elementwise, 2>, true},
    Rule{"adaptiveaverage", assumed_covered<F::elementwise, 2>, true},
    Rule{"adaptivemax", assumed_covered<F::elementwise, 2, 8>, true},
    // attention
    Rule{"flash_fwd_kernel", flash_forward_work},
    Rule{"flash_fwd_splitkv_kernel", flash_forward_work},
    Rule{"flash_fwd_splitkv_combine_kernel", flash_aside_work},
    Rule{"flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel", flash_backward_work},
    Rule{"flash_bwd_dot_do_o_kernel", flash_aside_work},
    Rule{"flash_bwd_convert_dq_kernel", flash_aside_work},
    Rule{"flash_bwd_convert_dkv_kernel", flash_aside_work},
    Rule{"fmha_cutlass", cutlass_attention_work, true},
    // softmax and cross entropy
    Rule{"cunn_SoftMax", softmax_row_work, true},
    Rule{"cunn_SpatialSoftMax", softmax_row_work, true},
    Rule{"softmax_warp_", softmax_warp_work, true},
    Rule{"scaled_masked_softmax_warp_", softmax_warp_work, true},
    Rule{"scaled_softmax_warp_", softmax_warp_work, true},
    Rule{"scaled_upper_triang_masked_softmax_warp_", softmax_warp_work, true},
    Rule{"nll_loss_", bookkeeping<F::softmax>, true},
    // normalisation
    Rule{"vectorized_layer_norm_kernel", norm_forward_work},
    Rule{"RowwiseMomentsCUDAKernel", norm_moments_work},
    Rule{"LayerNormForwardCUDAKernel", norm_forward_work},
    Rule{"layer_norm_grad_input_kernel", norm_backward_work, true},
    Rule{"GammaBetaBackward", norm_weight_work, true},
    Rule{"cuApplyLayerNorm", norm_forward_work},
    Rule{"cuApplyRMSNorm", norm_forward_work},
    Rule{"cuComputeGradInput", norm_backward_work},
    Rule{"cuComputePartGradGammaBeta", norm_weight_work},
    Rule{"cuComputeGradGammaBeta", norm_weight_work},
    Rule{"GammaBeta1dBackwardCUDAKernel", norm_weight_work, true},
    Rule{"Compute1dBackwardFusedParamsCUDAKernel", covered<F::normalization, 1, 8>},
    Rule{"ComputeInternalGradientsCUDAKernel", norm_moments_work},
    Rule{"batch_norm_collect_statistics", covered<F::normalization, 1, 0, 4>, true},
    Rule{"batch_norm_transform_input", covered<F::normalization, 2, 0, 4>, true},
    Rule{"batch_norm_reduce_statistics_kernel", bookkeeping<F::normalization>},
    Rule{"batch_norm_backward", covered<F::normalization, 2, 0, 4>, true},
    // embedding, gather, scatter, index
    Rule{"vectorized_gather_kernel", gather_work},
    Rule{"indexSelect", index_select_work, true},
    Rule{"indexFunc", covered<F::embedding, 3>, true},
    Rule{"indexing_backward_kernel", covered<F::embedding, 3, 0, 4>, true},
    Rule{"tma_scatter_add_kernel", covered<F::embedding, 3, 0, 4>},
    Rule{"embedding_backward_feature_kernel", covered<F::embedding, 3>},
    Rule{"compute_grad_weight", covered<F::embedding, 1, 4>, true},
    Rule{"sum_and_scatter", covered<F::embedding, 1, 4>},
    Rule{"EmbeddingBag_", covered<F::embedding, 2>, true},
    // nonzero: a flat index becomes a coordinate in each of (mostly) two dimensions
    Rule{"write_indices", covered<F::embedding, 0, 24>},
    Rule{"krn_partial", bookkeeping<F::embedding>, true},
    Rule{"compute_num_of_partial_segments", bookkeeping<F::embedding>},
    Rule{"write_num_of_segments", bookkeeping<F::embedding>},
    // sorts and scans: 8-byte keys and 8-byte values, 16 a thread, read and written
    Rule{"DeviceRadixSortHistogramKernel", covered<F::sort, 0, 8, 16>},
    Rule{"DeviceRadixSortOnesweepKernel", covered<F::sort, 0, 32, 16>},
    Rule{"DeviceRadixSortSingleTileKernel", covered<F::sort, 0, 32, 16>},
    Rule{"DeviceRadixSort", bookkeeping<F::sort>, true},
    Rule{"DeviceScanKernel", covered<F::sort, 0, 16, 16>},
    Rule{"DeviceScanByKeyKernel", covered<F::sort, 0, 16, 16>},
    Rule{"DeviceUniqueByKeySweepKernel", covered<F::sort, 0, 32, 16>},
    Rule{"DeviceReduce", covered<F::sort, 0, 8, 16>, true},
    Rule{"DeviceSelectSweepKernel", covered<F::sort, 0, 16, 16>},
    Rule{"DeviceScan", bookkeeping<F::sort>, true},
    Rule{"DeviceCompactInitKernel", bookkeeping<F::sort>},
    Rule{"tensor_kernel_scan_", covered<F::sort, 2, 0, 16>, true},
    Rule{"radixSortKVInPlace", covered<F::sort, 2, 16, 32>},
    Rule{"bitonicSortKVInPlace", covered<F::sort, 2, 16, 2>},
    Rule{"computeBlockDigitCounts", covered<F::sort, 1, 0, 16>},
    Rule{"computeBlockwise", bookkeeping<F::sort>, true},
    Rule{"computeDigitCumSum", bookkeeping<F::sort>},
    Rule{"gatherTopK", covered<F::sort, 1, 0, 16>},
    Rule{"kernelHistogram1D", covered<F::sort, 1, 0, 16>},
    Rule{"fill", bookkeeping<F::sort>},
    // small helpers
    Rule{"unrolled_elementwise_kernel_for_multi_outputs", covered<F::elementwise, 4, 0, 4>},
    Rule{"cdist_kernel_cuda_impl", covered<F::elementwise, 2>},
    Rule{"_assert_async_cuda_kernel", bookkeeping<F::elementwise>},
    Rule{"masked_scatter_size_check", bookkeeping<F::elementwise>},
    Rule{"amp_update_scale_cuda_kernel", bookkeeping<F::elementwise>},
    Rule{"spin_kernel", bookkeeping<F::elementwise>},
};

Model find_model(std::string_view base) noexcept {
  Model found = nullptr;
  std::size_t length = 0;
  for (const Rule& rule : rules) {  // an exact name first, then the longest prefix
    if (rule.base == base) return rule.model;
    if (rule.prefix && base.starts_with(rule.base) && rule.base.size() > length) {
      found = rule.model;
      length = rule.base.size();
    }
  }
  return found;
}

}  // namespace

KernelWork kernel_work(const KernelName& name, const KernelShape& shape) {
  const Model model = find_model(name.base());
  if (model == nullptr) return {};
  return model(Launch(name, shape));
}

std::string_view name(KernelFamily family) noexcept {
  switch (family) {
    case F::unknown:
      break;
    case F::gemm:
      return "gemm";
    case F::attention:
      return "attention";
    case F::elementwise:
      return "elementwise";
    case F::reduction:
      return "reduction";
    case F::normalization:
      return "normalization";
    case F::softmax:
      return "softmax";
    case F::embedding:
      return "embedding";
    case F::optimizer:
      return "optimizer";
    case F::copy:
      return "copy";
    case F::attention_backward:
      return "attention_backward";
    case F::sort:
      return "sort";
    case F::random:
      return "random";
  }
  return "unknown";
}

}  // namespace prism
