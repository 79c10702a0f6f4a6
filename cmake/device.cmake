# The kernels of csrc/device/kernels as one image in the core: prism_device_image is its source.
# nvcc 12.8 or later makes it, from the machine or from `make kernels`; without one the core has no
# kernels and all else.
set(PRISM_KERNELS AUTO CACHE STRING "Kernels for real GPUs: AUTO (where there is an nvcc for them), ON, OFF")
set_property(CACHE PRISM_KERNELS PROPERTY STRINGS AUTO ON OFF)
set(prism_device_image ${PROJECT_SOURCE_DIR}/csrc/device/none/image.cc)
set(prism_kernel_targets "")
if(NOT PRISM_KERNELS STREQUAL "OFF")
  find_program(PRISM_NVCC nvcc PATHS ${PROJECT_SOURCE_DIR}/build/nvcc/bin /usr/local/cuda/bin)
  set(version 0)
  if(PRISM_NVCC)
    execute_process(COMMAND ${PRISM_NVCC} --version OUTPUT_VARIABLE text ERROR_QUIET)
    if(text MATCHES "release ([0-9]+\\.[0-9]+)")
      set(version ${CMAKE_MATCH_1})
    endif()
  endif()
  set(codes "")
  foreach(target IN ITEMS sm_80 sm_90 sm_100 compute_80)
    string(REPLACE "sm_" "compute_" virtual ${target})
    list(APPEND codes -gencode arch=${virtual},code=${target})
  endforeach()
  # It may be there and not work: parts missing, or a host compiler that it does not take.
  set(why "no nvcc found, expected that of CUDA 12.8 or later")
  if(PRISM_NVCC)
    set(why "${PRISM_NVCC} is of CUDA ${version}, expected 12.8 or later")
  endif()
  if(version VERSION_GREATER_EQUAL 12.8)  # the first that knows sm_100
    if(NOT PRISM_NVCC_WORKS STREQUAL PRISM_NVCC)
      file(WRITE ${PROJECT_BINARY_DIR}/nvcc_works.cu "#include <cuda_fp8.h>\n__global__ void nothing() {}\n")
      execute_process(COMMAND ${PRISM_NVCC} --fatbin -std=c++20 ${codes} nvcc_works.cu -o nvcc_works.fatbin
        WORKING_DIRECTORY ${PROJECT_BINARY_DIR} RESULT_VARIABLE result OUTPUT_VARIABLE text ERROR_VARIABLE text)
      if(result EQUAL 0)
        set(PRISM_NVCC_WORKS ${PRISM_NVCC} CACHE INTERNAL "The nvcc that was tried")
      endif()
    endif()
    if(PRISM_NVCC_WORKS STREQUAL PRISM_NVCC)
      set(prism_kernel_targets ${codes})
    else()
      set(why "${PRISM_NVCC} does not compile: ${text}")
    endif()
  endif()
  if(prism_kernel_targets)
    message(STATUS "Kernels for real GPUs: nvcc ${version}, ${PRISM_NVCC}")
  elseif(PRISM_KERNELS STREQUAL "ON")
    message(FATAL_ERROR "PRISM_KERNELS=ON: ${why}; `make kernels` installs one into build/nvcc, or set PRISM_NVCC")
  else()
    message(STATUS "Kernels for real GPUs: none, ${why}")
  endif()
endif()
if(prism_kernel_targets)
  set(strict "")
  if(PRISM_WARNINGS_AS_ERRORS)
    set(strict -Werror all-warnings -Xptxas -Werror)
  endif()
  set(image ${PROJECT_BINARY_DIR}/kernels.fatbin)
  set(prism_device_image ${PROJECT_BINARY_DIR}/kernels.cc)
  file(GLOB kernel_sources CONFIGURE_DEPENDS
    ${PROJECT_SOURCE_DIR}/csrc/device/kernels/*.cu ${PROJECT_SOURCE_DIR}/csrc/device/kernels/*.h)
  add_custom_command(OUTPUT ${prism_device_image}
    COMMAND ${PRISM_NVCC} --fatbin -std=c++20 -no-compress -Xptxas -warn-spills ${strict} ${prism_kernel_targets}
      -I${PROJECT_SOURCE_DIR}/csrc
      ${PROJECT_SOURCE_DIR}/csrc/device/kernels/all.cu -o ${image}
    COMMAND ${CMAKE_COMMAND} -D IMAGE=${image} -D SOURCE=${prism_device_image}
      -P ${PROJECT_SOURCE_DIR}/cmake/embed.cmake
    DEPENDS ${kernel_sources} ${PROJECT_SOURCE_DIR}/cmake/embed.cmake
    COMMENT "nvcc: the kernels of csrc/device" VERBATIM)
endif()
