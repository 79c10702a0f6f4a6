// Compiled, never run: our declarations of cuBLAS's and cuBLASLt's boundary against the vendor's
// headers.
#include <cstddef>

#include "vgpu/abi/cublas.h"
#include "vgpu/abi/cublaslt.h"

// Of the CUDA headers they need a few names, and the wheels lack parts of them.
#define __DRIVER_TYPES_H__
#define CU_COMPLEX_H_
#define __CUDA_FP16_H__
#define __CUDA_BF16_H__
using cudaStream_t = struct CUstream_st*;
struct cuComplex;
struct cuDoubleComplex;
struct __half;
struct __nv_bfloat16;
#include <cublasLt.h>
#include <cublas_v2.h>

namespace cb = prism::abi::cublas;
namespace lt = prism::abi::cublaslt;

static_assert(cb::version == CUBLAS_VERSION);
static_assert(sizeof(cublasStatus_t) == sizeof(cb::Status));
static_assert(sizeof(cublasOperation_t) == sizeof(cb::Operation));
static_assert(sizeof(cudaDataType) == sizeof(cb::CudaType));
static_assert(sizeof(cublasComputeType_t) == sizeof(cb::ComputeType));
static_assert(cb::success == CUBLAS_STATUS_SUCCESS &&
              cb::not_initialized == CUBLAS_STATUS_NOT_INITIALIZED);
static_assert(cb::alloc_failed == CUBLAS_STATUS_ALLOC_FAILED &&
              cb::invalid_value == CUBLAS_STATUS_INVALID_VALUE);
static_assert(cb::arch_mismatch == CUBLAS_STATUS_ARCH_MISMATCH &&
              cb::mapping_error == CUBLAS_STATUS_MAPPING_ERROR);
static_assert(cb::execution_failed == CUBLAS_STATUS_EXECUTION_FAILED);
static_assert(cb::internal_error == CUBLAS_STATUS_INTERNAL_ERROR);
static_assert(cb::not_supported == CUBLAS_STATUS_NOT_SUPPORTED &&
              cb::license_error == CUBLAS_STATUS_LICENSE_ERROR);
static_assert(cb::op_n == CUBLAS_OP_N && cb::op_t == CUBLAS_OP_T && cb::op_c == CUBLAS_OP_C);
static_assert(cb::pointer_host == CUBLAS_POINTER_MODE_HOST &&
              cb::pointer_device == CUBLAS_POINTER_MODE_DEVICE);
static_assert(cb::math_default == CUBLAS_DEFAULT_MATH && cb::math_pedantic == CUBLAS_PEDANTIC_MATH);
static_assert(cb::math_tf32 == CUBLAS_TF32_TENSOR_OP_MATH &&
              cb::math_bf16x9 == CUBLAS_FP32_EMULATED_BF16X9_MATH);
static_assert(cb::math_no_reduced_reduction == CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
static_assert(cb::compute_16f == CUBLAS_COMPUTE_16F && cb::compute_32f == CUBLAS_COMPUTE_32F);
static_assert(cb::compute_64f == CUBLAS_COMPUTE_64F && cb::compute_32i == CUBLAS_COMPUTE_32I);
static_assert(cb::compute_32f_fast_16f == CUBLAS_COMPUTE_32F_FAST_16F);
static_assert(cb::compute_32f_fast_16bf == CUBLAS_COMPUTE_32F_FAST_16BF);
static_assert(cb::compute_32f_fast_tf32 == CUBLAS_COMPUTE_32F_FAST_TF32);
static_assert(cb::compute_32f_emulated_16bfx9 == CUBLAS_COMPUTE_32F_EMULATED_16BFX9);
static_assert(cb::r_32f == CUDA_R_32F && cb::r_64f == CUDA_R_64F && cb::r_16f == CUDA_R_16F);
static_assert(cb::r_8i == CUDA_R_8I && cb::r_8u == CUDA_R_8U && cb::r_32i == CUDA_R_32I);
static_assert(cb::r_32u == CUDA_R_32U && cb::r_64i == CUDA_R_64I && cb::r_64u == CUDA_R_64U);
static_assert(cb::c_32f == CUDA_C_32F && cb::c_64f == CUDA_C_64F && cb::r_16bf == CUDA_R_16BF);
static_assert(cb::r_8f_e4m3 == CUDA_R_8F_E4M3 && cb::r_8f_e5m2 == CUDA_R_8F_E5M2);
static_assert(cb::r_8f_ue8m0 == CUDA_R_8F_UE8M0 && cb::r_4f_e2m1 == CUDA_R_4F_E2M1);

static_assert(sizeof(lt::LayoutOpaque) == sizeof(cublasLtMatrixLayoutOpaque_t));
static_assert(sizeof(lt::MatmulDescOpaque) == sizeof(cublasLtMatmulDescOpaque_t));
static_assert(sizeof(lt::PreferenceOpaque) == sizeof(cublasLtMatmulPreferenceOpaque_t));
static_assert(sizeof(lt::Algorithm) == sizeof(cublasLtMatmulAlgo_t));
static_assert(sizeof(lt::HeuristicResult) == sizeof(cublasLtMatmulHeuristicResult_t));
static_assert(offsetof(lt::HeuristicResult, workspace_bytes) ==
              offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
static_assert(offsetof(lt::HeuristicResult, state) ==
              offsetof(cublasLtMatmulHeuristicResult_t, state));
static_assert(offsetof(lt::HeuristicResult, waves_count) ==
              offsetof(cublasLtMatmulHeuristicResult_t, wavesCount));

static_assert(lt::order_column == CUBLASLT_ORDER_COL && lt::order_row == CUBLASLT_ORDER_ROW);
#define SAME(mine, theirs) \
  static_assert(static_cast<int>(lt::mine) == static_cast<int>(CUBLASLT_##theirs))
SAME(layout_type, MATRIX_LAYOUT_TYPE);
SAME(layout_order, MATRIX_LAYOUT_ORDER);
SAME(layout_rows, MATRIX_LAYOUT_ROWS);
SAME(layout_cols, MATRIX_LAYOUT_COLS);
SAME(layout_ld, MATRIX_LAYOUT_LD);
SAME(layout_batch_count, MATRIX_LAYOUT_BATCH_COUNT);
SAME(layout_batch_stride, MATRIX_LAYOUT_STRIDED_BATCH_OFFSET);
SAME(layout_plane_offset, MATRIX_LAYOUT_PLANE_OFFSET);
SAME(layout_batch_mode, MATRIX_LAYOUT_BATCH_MODE);
SAME(desc_compute_type, MATMUL_DESC_COMPUTE_TYPE);
SAME(desc_scale_type, MATMUL_DESC_SCALE_TYPE);
SAME(desc_pointer_mode, MATMUL_DESC_POINTER_MODE);
SAME(desc_trans_a, MATMUL_DESC_TRANSA);
SAME(desc_trans_b, MATMUL_DESC_TRANSB);
SAME(desc_trans_c, MATMUL_DESC_TRANSC);
SAME(desc_fill_mode, MATMUL_DESC_FILL_MODE);
SAME(desc_epilogue, MATMUL_DESC_EPILOGUE);
SAME(desc_bias_pointer, MATMUL_DESC_BIAS_POINTER);
SAME(desc_bias_batch_stride, MATMUL_DESC_BIAS_BATCH_STRIDE);
SAME(desc_aux_pointer, MATMUL_DESC_EPILOGUE_AUX_POINTER);
SAME(desc_aux_ld, MATMUL_DESC_EPILOGUE_AUX_LD);
SAME(desc_aux_batch_stride, MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE);
SAME(desc_alpha_batch_stride, MATMUL_DESC_ALPHA_VECTOR_BATCH_STRIDE);
SAME(desc_sm_count_target, MATMUL_DESC_SM_COUNT_TARGET);
SAME(desc_a_scale_pointer, MATMUL_DESC_A_SCALE_POINTER);
SAME(desc_b_scale_pointer, MATMUL_DESC_B_SCALE_POINTER);
SAME(desc_c_scale_pointer, MATMUL_DESC_C_SCALE_POINTER);
SAME(desc_d_scale_pointer, MATMUL_DESC_D_SCALE_POINTER);
SAME(desc_amax_d_pointer, MATMUL_DESC_AMAX_D_POINTER);
SAME(desc_aux_data_type, MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE);
SAME(desc_aux_scale_pointer, MATMUL_DESC_EPILOGUE_AUX_SCALE_POINTER);
SAME(desc_aux_amax_pointer, MATMUL_DESC_EPILOGUE_AUX_AMAX_POINTER);
SAME(desc_fast_accumulation, MATMUL_DESC_FAST_ACCUM);
SAME(desc_bias_data_type, MATMUL_DESC_BIAS_DATA_TYPE);
SAME(desc_a_scale_mode, MATMUL_DESC_A_SCALE_MODE);
SAME(desc_b_scale_mode, MATMUL_DESC_B_SCALE_MODE);
SAME(desc_c_scale_mode, MATMUL_DESC_C_SCALE_MODE);
SAME(desc_d_scale_mode, MATMUL_DESC_D_SCALE_MODE);
SAME(desc_aux_scale_mode, MATMUL_DESC_EPILOGUE_AUX_SCALE_MODE);
SAME(desc_d_out_scale_pointer, MATMUL_DESC_D_OUT_SCALE_POINTER);
SAME(desc_d_out_scale_mode, MATMUL_DESC_D_OUT_SCALE_MODE);
SAME(epilogue_none, EPILOGUE_DEFAULT);
SAME(epilogue_relu, EPILOGUE_RELU);
SAME(epilogue_bias, EPILOGUE_BIAS);
SAME(epilogue_gelu, EPILOGUE_GELU);
SAME(epilogue_bias_gradient_a, EPILOGUE_BGRADA);
SAME(epilogue_bias_gradient_b, EPILOGUE_BGRADB);
SAME(preference_search_mode, MATMUL_PREF_SEARCH_MODE);
SAME(preference_max_workspace_bytes, MATMUL_PREF_MAX_WORKSPACE_BYTES);
SAME(preference_reduction_mask, MATMUL_PREF_REDUCTION_SCHEME_MASK);
SAME(preference_min_alignment_a, MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
SAME(preference_min_alignment_b, MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
SAME(preference_min_alignment_c, MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
SAME(preference_min_alignment_d, MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
SAME(preference_max_waves, MATMUL_PREF_MAX_WAVES_COUNT);
SAME(preference_implementation_mask, MATMUL_PREF_IMPL_MASK);
#undef SAME
static_assert((lt::epilogue_drelu | lt::epilogue_aux | lt::epilogue_bias_gradient) ==
              CUBLASLT_EPILOGUE_DRELU_BGRAD);
static_assert((lt::epilogue_dgelu | lt::epilogue_aux) == CUBLASLT_EPILOGUE_DGELU);
static_assert((lt::epilogue_gelu | lt::epilogue_aux | lt::epilogue_bias) ==
              CUBLASLT_EPILOGUE_GELU_AUX_BIAS);
