# Shared objects that stand in for vendor libraries. Each links libprismcore.so and nothing of
# the vendor's.
#
# prism_standin(TARGET SONAME LABEL REFUSAL EXPORTS SOURCES [VERSION_NODE])
#   EXPORTS  files: one name a line, every name that the vendor's library exports (csrc/vgpu/standins/
#            exports), with an optional second word:
#              (none)  refused: counted, named in the report, returns REFUSAL
#              ignore  harmless: counted, returns 0
#              own     SOURCES must define it (it returns a pointer or a struct)
#   SOURCES  define the names that are implemented; a strong definition wins over the weak
#            trampoline that is generated for every name.
#   VERSION_NODE  ELF version of the exported names; left out: none.
set(prism_exports_dir ${PROJECT_SOURCE_DIR}/csrc/vgpu/standins/exports)
set(prism_doors_dir ${PROJECT_BINARY_DIR}/doors)
add_custom_target(prism_doors)

function(prism_standin)
  if(NOT PRISM_SANITIZE STREQUAL "")
    return()  # they are loaded into a Python that is not instrumented; tests link their sources
  endif()
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "TARGET;SONAME;VERSION_NODE;LABEL;REFUSAL" "EXPORTS;SOURCES")
  foreach(required TARGET SONAME LABEL REFUSAL EXPORTS SOURCES)
    if(NOT DEFINED arg_${required})
      message(FATAL_ERROR "prism_standin: ${required} is missing")
    endif()
  endforeach()

  set(trampolines "")
  set(owned "")
  set(globals "")
  set(lines "")
  foreach(exports IN LISTS arg_EXPORTS)
    file(STRINGS ${exports} names REGEX "^[A-Za-z_]")
    list(APPEND lines ${names})
  endforeach()
  foreach(line IN LISTS lines)
    if(NOT line MATCHES "^([A-Za-z_][A-Za-z0-9_]*)( (ignore|own))?$")
      message(FATAL_ERROR "${arg_EXPORTS}: cannot read \"${line}\": expected NAME, NAME ignore or NAME own")
    endif()
    set(name ${CMAKE_MATCH_1})
    string(APPEND globals "    ${name};\n")
    if(CMAKE_MATCH_3 STREQUAL "own")
      string(APPEND owned "PRISM_OWN(${name})\n")
    elseif(CMAKE_MATCH_3 STREQUAL "ignore")
      string(APPEND trampolines "PRISM_TRAMPOLINE(${name}, 0)\n")
    else()
      string(APPEND trampolines "PRISM_TRAMPOLINE(${name}, ${arg_REFUSAL})\n")
    endif()
  endforeach()
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${arg_EXPORTS})

  set(generated ${prism_doors_dir}/${arg_TARGET}_trampolines.cc)
  set(script ${prism_doors_dir}/${arg_TARGET}.map)
  file(CONFIGURE OUTPUT ${generated} @ONLY CONTENT [[
#include "vgpu/standins/standin.h"
#define PRISM_TRAMPOLINE(name, answer)                                          \
  PRISM_EXPORT __attribute__((weak)) int name() {                               \
    return prism::standins::unimplemented("@arg_LABEL@", #name, answer);        \
  }
// Taking the address makes the link fail by name when the definition is missing.
#define PRISM_OWN(name) \
  void name();          \
  extern void (*const prism_owns_##name)(); \
  void (*const prism_owns_##name)() = name;
extern "C" {
@owned@
@trampolines@
}
]])
  file(CONFIGURE OUTPUT ${script} @ONLY CONTENT "@arg_VERSION_NODE@ {\n  global:\n@globals@  local: *;\n};\n")

  add_library(${arg_TARGET} SHARED
    ${arg_SOURCES} ${generated} ${PROJECT_SOURCE_DIR}/csrc/vgpu/standins/standin.cc)
  target_link_libraries(${arg_TARGET} PRIVATE prism_core prism_flags Threads::Threads ${CMAKE_DL_LIBS})
  # The file name is the SONAME (CMake takes one from the other).
  set_target_properties(${arg_TARGET} PROPERTIES
    PREFIX "" OUTPUT_NAME ${arg_SONAME} SUFFIX ""
    LINK_DEPENDS ${script} BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN")
  target_link_options(${arg_TARGET} PRIVATE -Wl,--version-script=${script} -Wl,-z,defs)
  if(PRISM_INPLACE)
    set_target_properties(${arg_TARGET} PROPERTIES
      LIBRARY_OUTPUT_DIRECTORY ${PROJECT_SOURCE_DIR}/python/prismcore/lib)
  endif()
  install(TARGETS ${arg_TARGET} LIBRARY DESTINATION prismcore/lib COMPONENT prismcore)
  add_dependencies(prism_doors ${arg_TARGET})
endfunction()

file(GLOB prism_cudart_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/csrc/vgpu/standins/cudart/*.cc)
prism_standin(TARGET prism_cudart LABEL cudart REFUSAL 801  # cudaErrorNotSupported
  SONAME libcudart.so.13 VERSION_NODE libcudart.so.13
  EXPORTS ${prism_exports_dir}/cudart.txt
  SOURCES ${prism_cudart_sources} ${PROJECT_SOURCE_DIR}/csrc/vgpu/standins/device_description.cc)

file(GLOB prism_cuda_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/csrc/vgpu/standins/driver/*.cc)
prism_standin(TARGET prism_cuda LABEL cuda REFUSAL 801  # CUDA_ERROR_NOT_SUPPORTED
  SONAME libcuda.so.1
  EXPORTS ${prism_exports_dir}/cuda.txt
  SOURCES ${prism_cuda_sources} ${PROJECT_SOURCE_DIR}/csrc/vgpu/standins/device_description.cc)

# Not a stand-in of a vendor's library, but built like one: it answers one symbol of torch's.
file(GLOB prism_torch_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/csrc/vgpu/standins/torch/*.cc)
prism_standin(TARGET prism_allocator LABEL torch REFUSAL 1
  SONAME libprism_allocator.so
  EXPORTS ${prism_exports_dir}/torch.txt
  SOURCES ${prism_torch_sources})

file(GLOB prism_blas_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/csrc/vgpu/standins/blas/*.cc)

file(GLOB prism_cublas_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/csrc/vgpu/standins/cublas/*.cc)
prism_standin(TARGET prism_cublas LABEL cublas REFUSAL 15  # CUBLAS_STATUS_NOT_SUPPORTED
  SONAME libcublas.so.13 VERSION_NODE libcublas.so.13 EXPORTS ${prism_exports_dir}/cublas.txt
  SOURCES ${prism_cublas_sources} ${prism_blas_sources})

file(GLOB prism_cublaslt_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/csrc/vgpu/standins/cublaslt/*.cc)
prism_standin(TARGET prism_cublaslt LABEL cublasLt REFUSAL 15
  SONAME libcublasLt.so.13 VERSION_NODE libcublasLt.so.13 EXPORTS ${prism_exports_dir}/cublaslt.txt
  SOURCES ${prism_cublaslt_sources} ${prism_blas_sources})

# The NCCL door. It does not take the place of libnccl.so.2 (own SONAME): it stands before it in
# the global scope. Its sources are a library of their own for the C++ tests.
file(GLOB prism_intercept_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/csrc/intercept/*.cc)
prism_standin(TARGET prism_nccl LABEL nccl REFUSAL 5  # ncclInvalidUsage
  SONAME libprism_nccl.so EXPORTS ${prism_exports_dir}/nccl.txt ${prism_exports_dir}/nccl_door.txt
  SOURCES ${prism_intercept_sources})
if(PRISM_BUILD_TESTS)
  add_library(prism_intercept STATIC ${prism_intercept_sources})
  target_link_libraries(prism_intercept PUBLIC prism_core PRIVATE prism_flags Threads::Threads ${CMAKE_DL_LIBS})
endif()
prism_standin(TARGET prism_nvml LABEL nvml REFUSAL 3  # NVML_ERROR_NOT_SUPPORTED
  SONAME libnvidia-ml.so.1
  EXPORTS ${prism_exports_dir}/nvml.txt
  SOURCES ${PROJECT_SOURCE_DIR}/csrc/vgpu/standins/nvml/nvml.cc
    ${PROJECT_SOURCE_DIR}/csrc/vgpu/standins/device_description.cc)
