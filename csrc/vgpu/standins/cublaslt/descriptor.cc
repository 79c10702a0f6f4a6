// cuBLASLt: layouts, operation descriptors and preferences.
#include "vgpu/standins/cublaslt/descriptor.h"

#include <array>
#include <cstring>
#include <new>
#include <string_view>

#include "vgpu/standins/cublaslt/attributes.h"
#include "vgpu/standins/standin.h"

namespace prism::standins::cublaslt {

std::string epilogue_name(std::uint32_t epilogue) {
  struct Word {
    std::uint32_t bit;
    std::string_view text;
  };
  static constexpr std::array words{
      Word{abi::cublaslt::epilogue_relu, "relu"},
      Word{abi::cublaslt::epilogue_drelu, "drelu"},
      Word{abi::cublaslt::epilogue_gelu, "gelu"},
      Word{abi::cublaslt::epilogue_dgelu, "dgelu"},
      Word{abi::cublaslt::epilogue_aux, "aux"},
      Word{abi::cublaslt::epilogue_bias, "bias"},
      Word{abi::cublaslt::epilogue_bias_gradient, "bgrad"},
      Word{abi::cublaslt::epilogue_bias_gradient_a, "bgrada"},
      Word{abi::cublaslt::epilogue_bias_gradient_b, "bgradb"},
  };
  std::string name;
  for (const Word& word : words) {
    if ((epilogue & word.bit) == 0) continue;
    if (!name.empty()) name += '_';
    name += word.text;
  }
  return name;
}

}  // namespace prism::standins::cublaslt

namespace cb = prism::abi::cublas;
namespace lt = prism::abi::cublaslt;
using namespace prism::standins::cublaslt;

namespace {

constexpr std::array layout_table{
    PRISM_ATTRIBUTE(lt::layout_type, Layout, type),
    PRISM_ATTRIBUTE(lt::layout_order, Layout, order),
    PRISM_ATTRIBUTE(lt::layout_rows, Layout, rows),
    PRISM_ATTRIBUTE(lt::layout_cols, Layout, cols),
    PRISM_ATTRIBUTE(lt::layout_ld, Layout, ld),
    PRISM_ATTRIBUTE(lt::layout_batch_count, Layout, batch),
    PRISM_ATTRIBUTE(lt::layout_batch_stride, Layout, batch_stride),
    PRISM_ATTRIBUTE(lt::layout_plane_offset, Layout, plane_offset),
    PRISM_ATTRIBUTE(lt::layout_batch_mode, Layout, batch_mode),
};

constexpr std::array desc_table{
    PRISM_ATTRIBUTE(lt::desc_compute_type, MatmulDesc, compute_type),
    PRISM_ATTRIBUTE(lt::desc_scale_type, MatmulDesc, scale_type),
    PRISM_ATTRIBUTE(lt::desc_pointer_mode, MatmulDesc, pointer_mode),
    PRISM_ATTRIBUTE(lt::desc_trans_a, MatmulDesc, trans_a),
    PRISM_ATTRIBUTE(lt::desc_trans_b, MatmulDesc, trans_b),
    PRISM_ATTRIBUTE(lt::desc_trans_c, MatmulDesc, trans_c),
    PRISM_ATTRIBUTE(lt::desc_fill_mode, MatmulDesc, fill_mode),
    PRISM_ATTRIBUTE(lt::desc_epilogue, MatmulDesc, epilogue),
    PRISM_ATTRIBUTE(lt::desc_bias_pointer, MatmulDesc, bias),
    PRISM_ATTRIBUTE(lt::desc_bias_batch_stride, MatmulDesc, bias_batch_stride),
    PRISM_ATTRIBUTE(lt::desc_aux_pointer, MatmulDesc, aux),
    PRISM_ATTRIBUTE(lt::desc_aux_ld, MatmulDesc, aux_ld),
    PRISM_ATTRIBUTE(lt::desc_aux_batch_stride, MatmulDesc, aux_batch_stride),
    PRISM_ATTRIBUTE(lt::desc_alpha_batch_stride, MatmulDesc, alpha_batch_stride),
    PRISM_ATTRIBUTE(lt::desc_sm_count_target, MatmulDesc, sm_target),
    PRISM_ATTRIBUTE(lt::desc_a_scale_pointer, MatmulDesc, a_scale),
    PRISM_ATTRIBUTE(lt::desc_b_scale_pointer, MatmulDesc, b_scale),
    PRISM_ATTRIBUTE(lt::desc_c_scale_pointer, MatmulDesc, c_scale),
    PRISM_ATTRIBUTE(lt::desc_d_scale_pointer, MatmulDesc, d_scale),
    PRISM_ATTRIBUTE(lt::desc_amax_d_pointer, MatmulDesc, amax_d),
    PRISM_ATTRIBUTE(lt::desc_aux_data_type, MatmulDesc, aux_type),
    PRISM_ATTRIBUTE(lt::desc_aux_scale_pointer, MatmulDesc, aux_scale),
    PRISM_ATTRIBUTE(lt::desc_aux_amax_pointer, MatmulDesc, aux_amax),
    PRISM_ATTRIBUTE(lt::desc_fast_accumulation, MatmulDesc, fast_accumulation),
    PRISM_ATTRIBUTE(lt::desc_bias_data_type, MatmulDesc, bias_type),
    PRISM_ATTRIBUTE(lt::desc_a_scale_mode, MatmulDesc, a_scale_mode),
    PRISM_ATTRIBUTE(lt::desc_b_scale_mode, MatmulDesc, b_scale_mode),
    PRISM_ATTRIBUTE(lt::desc_c_scale_mode, MatmulDesc, c_scale_mode),
    PRISM_ATTRIBUTE(lt::desc_d_scale_mode, MatmulDesc, d_scale_mode),
    PRISM_ATTRIBUTE(lt::desc_aux_scale_mode, MatmulDesc, aux_scale_mode),
    PRISM_ATTRIBUTE(lt::desc_d_out_scale_pointer, MatmulDesc, d_out_scale),
    PRISM_ATTRIBUTE(lt::desc_d_out_scale_mode, MatmulDesc, d_out_scale_mode),
};

constexpr std::array preference_table{
    PRISM_ATTRIBUTE(lt::preference_search_mode, Preference, search_mode),
    PRISM_ATTRIBUTE(lt::preference_max_workspace_bytes, Preference, max_workspace_bytes),
    PRISM_ATTRIBUTE(lt::preference_reduction_mask, Preference, reduction_mask),
    PRISM_ATTRIBUTE(lt::preference_min_alignment_a, Preference, min_alignment[0]),
    PRISM_ATTRIBUTE(lt::preference_min_alignment_b, Preference, min_alignment[1]),
    PRISM_ATTRIBUTE(lt::preference_min_alignment_c, Preference, min_alignment[2]),
    PRISM_ATTRIBUTE(lt::preference_min_alignment_d, Preference, min_alignment[3]),
    PRISM_ATTRIBUTE(lt::preference_max_waves, Preference, max_waves),
    PRISM_ATTRIBUTE(lt::preference_implementation_mask, Preference, implementation_mask),
};

// Placed inside the caller's opaque memory, or in memory of our own that destroy() frees.
template <class Object, class Opaque>
Object* place(Opaque* memory) noexcept {
  std::memset(memory, 0, sizeof(Opaque));
  return new (memory) Object;
}

template <class Object, class Opaque>
cb::Status create(Opaque** handle, const Object& value) noexcept {
  if (handle == nullptr) return cb::invalid_value;
  *handle = new (std::nothrow) Opaque;
  if (*handle == nullptr) return cb::alloc_failed;
  *place<Object>(*handle) = value;
  return cb::success;
}

template <class Object, class Opaque>
cb::Status initialize(Opaque* memory, std::size_t size, const Object& value) noexcept {
  if (memory == nullptr || size < sizeof(Opaque)) return cb::invalid_value;
  *place<Object>(memory) = value;
  return cb::success;
}

template <class Opaque>
cb::Status destroy(Opaque* handle) noexcept {
  delete handle;
  return cb::success;
}

Layout layout_of(cb::CudaType type, std::uint64_t rows, std::uint64_t cols, std::int64_t ld) {
  Layout layout;
  layout.type = type;
  layout.rows = rows;
  layout.cols = cols;
  layout.ld = ld;
  return layout;
}

MatmulDesc desc_of(cb::ComputeType compute, cb::CudaType scale) {
  MatmulDesc desc;
  desc.compute_type = compute;
  desc.scale_type = scale;
  return desc;
}

}  // namespace

extern "C" {

#define PRISM_DESCRIPTOR(name, Opaque, table)                                                     \
  PRISM_EXPORT cb::Status cublasLt##name##Destroy(lt::Opaque* object) { return destroy(object); } \
  PRISM_EXPORT cb::Status cublasLt##name##SetAttribute(lt::Opaque* object, int id,                \
                                                       const void* buffer, std::size_t size) {    \
    return set(table, object, id, buffer, size);                                                  \
  }                                                                                               \
  PRISM_EXPORT cb::Status cublasLt##name##GetAttribute(                                           \
      const lt::Opaque* object, int id, void* buffer, std::size_t size, std::size_t* written) {   \
    return get(table, object, id, buffer, size, written);                                         \
  }
PRISM_DESCRIPTOR(MatrixLayout, LayoutOpaque, layout_table)
PRISM_DESCRIPTOR(MatmulDesc, MatmulDescOpaque, desc_table)
PRISM_DESCRIPTOR(MatmulPreference, PreferenceOpaque, preference_table)
#undef PRISM_DESCRIPTOR

PRISM_EXPORT cb::Status cublasLtMatrixLayoutCreate(lt::LayoutOpaque** layout, cb::CudaType type,
                                                   std::uint64_t rows, std::uint64_t cols,
                                                   std::int64_t ld) {
  return create(layout, layout_of(type, rows, cols, ld));
}

PRISM_EXPORT cb::Status cublasLtMatrixLayoutInit_internal(lt::LayoutOpaque* layout,
                                                          std::size_t size, cb::CudaType type,
                                                          std::uint64_t rows, std::uint64_t cols,
                                                          std::int64_t ld) {
  return initialize(layout, size, layout_of(type, rows, cols, ld));
}

PRISM_EXPORT cb::Status cublasLtMatmulDescCreate(lt::MatmulDescOpaque** desc,
                                                 cb::ComputeType compute, cb::CudaType scale) {
  return create(desc, desc_of(compute, scale));
}

PRISM_EXPORT cb::Status cublasLtMatmulDescInit_internal(lt::MatmulDescOpaque* desc,
                                                        std::size_t size, cb::ComputeType compute,
                                                        cb::CudaType scale) {
  return initialize(desc, size, desc_of(compute, scale));
}

PRISM_EXPORT cb::Status cublasLtMatmulPreferenceCreate(lt::PreferenceOpaque** preference) {
  return create(preference, Preference{});
}

PRISM_EXPORT cb::Status cublasLtMatmulPreferenceInit_internal(lt::PreferenceOpaque* preference,
                                                              std::size_t size) {
  return initialize(preference, size, Preference{});
}

}  // extern "C"
