# SPDX-License-Identifier: Apache-2.0
# Reports in one sentence that a compiler or generator cannot build the modules; CMake itself has one error per target.
# Sets `result` to the sentence, or to nothing.
function(shardmesh_check_toolchain result)
  set(problem)
  if(NOT CMAKE_GENERATOR MATCHES "^Ninja")
    set(problem "the generator is ${CMAKE_GENERATOR}")
  elseif(NOT CMAKE_CXX_COMPILER_ID)
    set(problem "the project does not enable the language CXX before it")
  elseif(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang" OR CMAKE_CXX_COMPILER_VERSION VERSION_LESS 19)
    set(problem "the compiler is ${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}")
  elseif(NOT CMAKE_CXX_COMPILER_CLANG_SCAN_DEPS)
    set(problem "clang-scan-deps is missing (Debian: clang-tools-19)")
  endif()
  if(problem)
    set(problem "shardmesh is C++ modules and needs Clang 19 or newer and Ninja: ${problem}")
  endif()
  set(${result} "${problem}" PARENT_SCOPE)
endfunction()
