# SPDX-License-Identifier: Apache-2.0
# Run by ctest: pkg-config's flags for the moved prefix suffice to compile programs of the C interface, with each C
# compiler and with each C++ compiler. The programs run without a library path, up to their ends and on their error path.
function(expect_status status)
  cmake_parse_arguments(PARSE_ARGV 1 one "" "OUTPUT" "COMMAND")
  execute_process(
    COMMAND ${one_COMMAND}
    WORKING_DIRECTORY ${WORK}
    RESULT_VARIABLE found
    OUTPUT_VARIABLE text
    ERROR_VARIABLE text
  )
  if(NOT found EQUAL "${status}")
    list(JOIN one_COMMAND " " command)
    message(FATAL_ERROR "exits ${found}, expected ${status}: ${command}\n${text}")
  endif()
  if(one_OUTPUT)
    set(${one_OUTPUT} "${text}" PARENT_SCOPE)
  endif()
endfunction()
unset(ENV{LD_LIBRARY_PATH})
set(ENV{PKG_CONFIG_PATH} ${PREFIX}/${LIBDIR}/pkgconfig)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
expect_status(0 OUTPUT version COMMAND ${PKG_CONFIG} --modversion shardmesh_c)
if(NOT version STREQUAL "${VERSION}\n")
  message(FATAL_ERROR "pkg-config knows version ${version}")
endif()
expect_status(0 OUTPUT flags COMMAND ${PKG_CONFIG} --cflags --libs shardmesh_c)
separate_arguments(flags UNIX_COMMAND "${flags}")

# Compiles and runs one program, which must exit with STATUS and print PRINTS.
function(try_program)
  cmake_parse_arguments(PARSE_ARGV 0 one "" "COMPILER;STANDARD;SOURCE;STATUS;PRINTS" "ARGS")
  expect_status(
    0
    COMMAND ${one_COMPILER} -std=${one_STANDARD} ${one_SOURCE} ${flags} -o ${WORK}/program
  )
  expect_status(${one_STATUS} OUTPUT text COMMAND ${WORK}/program ${one_ARGS})
  if(NOT text MATCHES "${one_PRINTS}")
    message(FATAL_ERROR "${one_SOURCE} by ${one_COMPILER} prints, instead of '${one_PRINTS}':\n${text}")
  endif()
  message("${one_SOURCE} by ${one_COMPILER}: as expected")
endfunction()
set(
  error_path
  STATUS
  1
  PRINTS
  "^io: no-such-checkpoint: does not exist\n$"
  ARGS
  no-such-checkpoint
  saved
)
foreach(compiler IN LISTS C_COMPILERS)
  set(compile COMPILER ${compiler} STANDARD c11)
  try_program(${compile} SOURCE ${SOURCE}/tests/package/consumer_c/main.c STATUS 0 PRINTS "rank 3 of 4 holds 1 x 7")
  try_program(${compile} SOURCE ${SOURCE}/examples/checkpoint_from_c.c ${error_path})
endforeach()
foreach(compiler IN LISTS CXX_COMPILERS)
  try_program(COMPILER ${compiler} STANDARD c++17 SOURCE ${SOURCE}/examples/checkpoint_from_cpp17.cpp ${error_path})
endforeach()

# In folders that the loader searches, programs need no run path. The staged files show which of the two was installed.
foreach(prefix IN ITEMS /usr /usr/local /opt/shardmesh)
  set(ENV{DESTDIR} ${WORK}/staged)
  expect_status(0 COMMAND ${CMAKE_COMMAND} -DCMAKE_INSTALL_PREFIX=${prefix} -P ${INSTALL_SCRIPT})
  file(READ ${WORK}/staged${prefix}/${LIBDIR}/pkgconfig/shardmesh_c.pc text)
  string(FIND "${text}" "-Wl,-rpath" at)
  if((at EQUAL -1 AND prefix STREQUAL "/opt/shardmesh") OR (NOT at EQUAL -1 AND prefix MATCHES "^/usr"))
    message(FATAL_ERROR "the file for ${prefix}:\n${text}")
  endif()
endforeach()
