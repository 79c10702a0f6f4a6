find_path(PRISM_DOCTEST_INCLUDE doctest/doctest.h REQUIRED)  # Debian: doctest-dev
file(GLOB prism_test_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/cpp/*.cc)
add_executable(prism_tests ${prism_test_sources})
target_include_directories(prism_tests PRIVATE ${PRISM_DOCTEST_INCLUDE})
target_link_libraries(prism_tests PRIVATE prism_intercept prism_core prism_flags Threads::Threads ZLIB::ZLIB)
# One ctest entry a file: each is named after what it tests.
foreach(source IN LISTS prism_test_sources)
  get_filename_component(noun ${source} NAME_WE)
  if(NOT noun STREQUAL "main")
    add_test(NAME ${noun} COMMAND prism_tests --source-file=*/${noun}.cc)
    set_tests_properties(${noun} PROPERTIES TIMEOUT 300)
  endif()
endforeach()
