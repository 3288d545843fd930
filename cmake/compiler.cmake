# SPDX-License-Identifier: Apache-2.0
# One set of flags for the whole tree: a module built with one set cannot be imported with another.
# CMAKE_CXX_EXTENSIONS is never forced: consumers decide, and their BMIs must match their own dialect.
include(cmake/check_toolchain.cmake)
shardmesh_check_toolchain(problem)
if(problem)
  message(FATAL_ERROR "${problem}")
endif()
if(CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 22 AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 23)
  add_compile_options(-fno-modules-reduced-bmi) # Clang 22 drops declarations from reduced BMIs
endif()

set(SHARDMESH_SANITIZE "" CACHE STRING "Sanitizers for the whole tree, e.g. address,undefined")
if(SHARDMESH_SANITIZE)
  add_compile_options(-fsanitize=${SHARDMESH_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${SHARDMESH_SANITIZE})
endif()
if(SHARDMESH_BUILD_FUZZERS)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
if(PROJECT_IS_TOP_LEVEL)
  set(
    SHARDMESH_WARNINGS
    -Wall
    -Wextra
    -Wpedantic
    -Wconversion
    -Wno-sign-conversion
    -Wshadow
  )
endif()
