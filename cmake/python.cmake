find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module)
execute_process(COMMAND ${Python_EXECUTABLE} -m nanobind --cmake_dir
  OUTPUT_STRIP_TRAILING_WHITESPACE OUTPUT_VARIABLE nanobind_ROOT COMMAND_ERROR_IS_FATAL ANY)
find_package(nanobind CONFIG REQUIRED)

file(GLOB prism_bind_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/csrc/bind/*.cc)
nanobind_add_module(_core STABLE_ABI NB_DOMAIN prismcore BACKEND_MODULE nanobind_backend ${prism_bind_sources})
target_link_libraries(_core PRIVATE prism_core prism_flags)
target_include_directories(_core SYSTEM PRIVATE ${NB_DIR}/include)  # its warnings are not ours
set_target_properties(_core PROPERTIES BUILD_RPATH_USE_ORIGIN ON INSTALL_RPATH "$ORIGIN/lib")
if(PRISM_INPLACE)
  set_target_properties(_core PROPERTIES
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_SOURCE_DIR}/python/prismcore
    BUILD_RPATH "$ORIGIN/lib")
  set(prism_stub_dir ${PROJECT_SOURCE_DIR}/python/prismcore)
else()
  set(prism_stub_dir ${CMAKE_CURRENT_BINARY_DIR})
endif()
nanobind_add_stub(_core_stub MODULE _core OUTPUT ${prism_stub_dir}/_core.pyi
  PYTHON_PATH $<TARGET_FILE_DIR:_core> DEPENDS _core)
add_custom_target(prism_wheel ALL DEPENDS _core _core_stub prism_core prism_doors)
install(TARGETS _core LIBRARY DESTINATION prismcore COMPONENT prismcore)
install(FILES ${prism_stub_dir}/_core.pyi DESTINATION prismcore COMPONENT prismcore)
