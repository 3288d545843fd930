# SPDX-License-Identifier: Apache-2.0
# Run by ctest: configures a project that contains ours. It keeps its own test, files to install, and options, and gets
# no warning of ours. With BUILD_IT, it is also built and run (all of core from source).
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE text ERROR_VARIABLE text)
  if(NOT status EQUAL 0)
    message("${text}")
    message(FATAL_ERROR "fails with ${status}: ${ARGN}")
  endif()
  set(text "${text}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE ${BUILD})
run(
  ${CMAKE_COMMAND}
  -S
  ${SOURCE}
  -B
  ${BUILD}
  -G
  Ninja
  -DCMAKE_MAKE_PROGRAM=${MAKE_PROGRAM}
  -DCMAKE_BUILD_TYPE=Release
  -DCMAKE_CXX_COMPILER=${COMPILER}
  -DSHARDMESH_SOURCE=${SHARDMESH_SOURCE}
)
if(text MATCHES "Warning|SHARDMESH_")
  message("${text}")
  message(FATAL_ERROR "our project says something to a project that contains it")
endif()
run(${CMAKE_CTEST_COMMAND} --test-dir ${BUILD} -N)
if(NOT text MATCHES "Test #1: mine\n\nTotal Tests: 1\n")
  message("${text}")
  message(FATAL_ERROR "tests of ours are in a project that contains it")
endif()
file(READ ${BUILD}/compile_commands.json text)
string(REGEX MATCH " -W[^ \"]*" warning "${text}")
if(warning OR NOT text MATCHES "modules/core/box.cpp")
  message(FATAL_ERROR "files are compiled with our warnings: ${warning}")
endif()
string(REPLACE "${SOURCE}" "" text "${text}")
string(
  REGEX MATCH "(benchmarks|tools/shardmesh|modules/mpi|modules/remote|modules/kokkos|modules/torch|cuda_kernels)/"
  folder
  "${text}"
)
if(folder)
  message(FATAL_ERROR "a project that contains ours compiles files of ${folder}")
endif()
# Checks its installed files without building: the only file is its own.
file(GLOB_RECURSE scripts ${BUILD}/cmake_install.cmake ${BUILD}/_deps/*cmake_install.cmake)
foreach(script IN LISTS scripts)
  file(STRINGS ${script} lines REGEX "file\\(INSTALL")
  list(FILTER lines EXCLUDE REGEX "TYPE EXECUTABLE FILES \"[^\"]*/consumer\"")
  if(lines)
    message(FATAL_ERROR "${script} installs more than the embedding project's program: ${lines}")
  endif()
endforeach()
if(BUILD_IT)
  run(${CMAKE_COMMAND} --build ${BUILD})
  run(${BUILD}/consumer)
endif()
