# Language, warnings, visibility, sanitizers and the compiler cache for everything that is built here.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_LINK_DEPENDS_NO_SHARED ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo)
endif()

# -fPIC for executables too, so that they can share precompiled headers with the library.
# Designated initializers leave fields out on purpose; g++ takes that for a slip.
add_compile_options(-Wall -Wextra -Wno-missing-field-initializers -fPIC)

if(GRADWIRE_PLANTED)
  add_compile_definitions(GRADWIRE_PLANTED)  # base/rule.h
endif()

if(CMAKE_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options(-Wno-subobject-linkage)  # g++ takes a source among others for a header
endif()

if(GRADWIRE_SANITIZE)
  # vptr: needs type information that libtorch hides. Errors are fatal, so that a test cannot pass in spite of one.
  add_compile_options(-fsanitize=${GRADWIRE_SANITIZE} -fno-sanitize=vptr -fno-sanitize-recover=all
                      -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${GRADWIRE_SANITIZE})
  # TSan does not model atomic_thread_fence and g++ says so at each use inside libtorch's headers.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-Wno-tsan)
  endif()
elseif(GRADWIRE_WERROR)
  # Not under sanitizers: instrumented code gives false "may be uninitialized" warnings.
  add_compile_options(-Werror)
endif()

find_program(GRADWIRE_CCACHE ccache)
if(GRADWIRE_CCACHE AND (NOT CMAKE_CXX_COMPILER_LAUNCHER OR CMAKE_CXX_COMPILER_LAUNCHER STREQUAL "ccache"))
  # Precompiled headers pass through the cache only with these (ccache manual, "Precompiled headers").
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      ${GRADWIRE_CCACHE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-fpch-preprocess)
  endif()
endif()
