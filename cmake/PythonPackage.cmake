# gradwire_extension(): the module gradwire._C, and build/<preset>/python/ as a directory for PYTHONPATH.
set(GRADWIRE_PACKAGE_DIR ${PROJECT_BINARY_DIR}/python/gradwire)

# gradwire_extension(SOURCES ... [PCH header]): sources see the public C++ API, libtorch, its pybind11 and Python.
function(gradwire_extension)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "PCH" "SOURCES")
  add_library(_C MODULE ${arg_SOURCES})
  gradwire_compile_with(_C PCH "${arg_PCH}" LINK Python::Module)
  target_link_libraries(_C PRIVATE gradwire Torch::torch_python)
  set_target_properties(_C PROPERTIES
    PREFIX "" SUFFIX ".${Python_SOABI}.so" LIBRARY_OUTPUT_DIRECTORY ${GRADWIRE_PACKAGE_DIR}
    INSTALL_RPATH "$ORIGIN;$ORIGIN/../torch/lib")
  # The Python files are links into the source tree: an edit needs no build.
  add_custom_target(gradwire_package ALL
    COMMAND ${CMAKE_COMMAND} -D FROM=${PROJECT_SOURCE_DIR}/python/gradwire -D TO=${GRADWIRE_PACKAGE_DIR}
            -P ${PROJECT_SOURCE_DIR}/cmake/LinkPythonFiles.cmake
    DEPENDS _C VERBATIM COMMENT "")
  if(SKBUILD)
    install(TARGETS _C LIBRARY DESTINATION gradwire)
  endif()
endfunction()
