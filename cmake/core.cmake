# The core is one shared library: the extension module and the doors of a process must share
# one recorder. It knows no Python, torch, CUDA or NCCL header.
file(GLOB_RECURSE prism_core_sources CONFIGURE_DEPENDS
  ${PROJECT_SOURCE_DIR}/csrc/base/*.cc
  ${PROJECT_SOURCE_DIR}/csrc/graph/*.cc
  ${PROJECT_SOURCE_DIR}/csrc/comm/*.cc
  ${PROJECT_SOURCE_DIR}/csrc/cost/*.cc
  ${PROJECT_SOURCE_DIR}/csrc/engine/*.cc
  ${PROJECT_SOURCE_DIR}/csrc/device/*.cc
  ${PROJECT_SOURCE_DIR}/csrc/kineto/*.cc
  ${PROJECT_SOURCE_DIR}/csrc/spare/*.cc
  ${PROJECT_SOURCE_DIR}/csrc/vgpu/device/*.cc)
# The kernels' image: built by nvcc, or none (device.cmake).
list(FILTER prism_core_sources EXCLUDE REGEX "/csrc/device/none/")
list(APPEND prism_core_sources ${prism_device_image})
# Draws are the same on every machine, also where multiply and add could be fused.
set_source_files_properties(${PROJECT_SOURCE_DIR}/csrc/engine/jitter.cc PROPERTIES
  COMPILE_OPTIONS -ffp-contract=off)
add_library(prism_core SHARED ${prism_core_sources})
set_target_properties(prism_core PROPERTIES
  OUTPUT_NAME prismcore CXX_VISIBILITY_PRESET default
  BUILD_RPATH_USE_ORIGIN ON INSTALL_RPATH "$ORIGIN")
target_include_directories(prism_core PUBLIC ${PROJECT_SOURCE_DIR}/csrc PRIVATE ${PRISM_XXHASH_INCLUDE})
target_include_directories(prism_core SYSTEM PRIVATE ${PRISM_RAPIDJSON_INCLUDE})  # its warnings are not ours
target_link_libraries(prism_core PRIVATE prism_flags Threads::Threads ZLIB::ZLIB ${CMAKE_DL_LIBS})
if(PRISM_INPLACE)
  set_target_properties(prism_core PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_SOURCE_DIR}/python/prismcore/lib)
endif()
install(TARGETS prism_core LIBRARY DESTINATION prismcore/lib COMPONENT prismcore)
