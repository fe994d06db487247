# Targets for the PyTorch that the chosen Python imports: Torch::c10, Torch::torch_cpu, Torch::torch_python.
# find_package(Torch) is not used: a CUDA build's package file asks for the CUDA toolkit, which nothing here needs.
# Installed too, for find_package(gradwire). Before it GRADWIRE_TORCH_WANTED is set to the version, "2.13.".
if(NOT Python_EXECUTABLE)
  if(DEFINED ENV{VIRTUAL_ENV})
    set(Python_EXECUTABLE $ENV{VIRTUAL_ENV}/bin/python)
  elseif(EXISTS ${CMAKE_SOURCE_DIR}/.venv/bin/python)
    set(Python_EXECUTABLE ${CMAKE_SOURCE_DIR}/.venv/bin/python)
  endif()
endif()
set(gradwire_python_parts Interpreter)
if(GRADWIRE_PYTHON)
  list(APPEND gradwire_python_parts Development.Module)
endif()
find_package(Python 3.11 COMPONENTS ${gradwire_python_parts} REQUIRED)

if(NOT GRADWIRE_TORCH_FOUND_BY STREQUAL Python_EXECUTABLE)
  execute_process(
    COMMAND ${Python_EXECUTABLE} -c
            "import torch; print(torch.utils.cmake_prefix_path, torch.__version__, sep=';', end='')"
    OUTPUT_VARIABLE found RESULT_VARIABLE failed)
  if(failed)
    message(FATAL_ERROR "${Python_EXECUTABLE} cannot import torch; choose another with -DPython_EXECUTABLE=...")
  endif()
  list(GET found 0 prefix)
  list(GET found 1 version)
  cmake_path(SET root NORMALIZE ${prefix}/../..)
  set(GRADWIRE_TORCH_ROOT ${root} CACHE INTERNAL "")
  set(GRADWIRE_TORCH_VERSION ${version} CACHE INTERNAL "")
  set(GRADWIRE_TORCH_FOUND_BY ${Python_EXECUTABLE} CACHE INTERNAL "")
endif()

string(FIND "${GRADWIRE_TORCH_VERSION}" "${GRADWIRE_TORCH_WANTED}" at)
if(NOT at EQUAL 0)
  message(FATAL_ERROR "gradwire needs PyTorch ${GRADWIRE_TORCH_WANTED}x, found ${GRADWIRE_TORCH_VERSION} in ${GRADWIRE_TORCH_ROOT}")
endif()
message(STATUS "PyTorch ${GRADWIRE_TORCH_VERSION} in ${GRADWIRE_TORCH_ROOT}")

add_library(Torch::headers INTERFACE IMPORTED)
target_include_directories(Torch::headers SYSTEM INTERFACE
                           ${GRADWIRE_TORCH_ROOT}/include
                           ${GRADWIRE_TORCH_ROOT}/include/torch/csrc/api/include)
target_compile_definitions(Torch::headers INTERFACE USE_DISTRIBUTED USE_C10D_GLOO)
# A CUDA build of libtorch_cpu names libraries that only its own run path finds.
target_link_options(Torch::headers INTERFACE -Wl,--allow-shlib-undefined)
foreach(name c10 torch_cpu torch_python)
  add_library(Torch::${name} SHARED IMPORTED)
  set_target_properties(Torch::${name} PROPERTIES IMPORTED_LOCATION ${GRADWIRE_TORCH_ROOT}/lib/lib${name}.so)
  target_link_libraries(Torch::${name} INTERFACE Torch::headers)
endforeach()
target_link_libraries(Torch::torch_cpu INTERFACE Torch::c10)
