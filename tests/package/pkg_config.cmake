# SPDX-License-Identifier: Apache-2.0
# Run by ctest: pkg-config's output for the moved prefix links a consumer's objects to a program that runs.
function(ask result)
  execute_process(
    COMMAND ${CMAKE_COMMAND} -E env PKG_CONFIG_PATH=${PREFIX}/${LIBDIR}/pkgconfig ${PKG_CONFIG} ${ARGN} shardmesh
    RESULT_VARIABLE status
    OUTPUT_VARIABLE text
    ERROR_VARIABLE text
    OUTPUT_STRIP_TRAILING_WHITESPACE
  )
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "pkg-config ${ARGN}: ${text}")
  endif()
  set(${result} "${text}" PARENT_SCOPE)
endfunction()
ask(version --modversion)
ask(modules --variable=modules)
if(NOT version STREQUAL VERSION OR NOT EXISTS ${modules}/shardmesh.cppm)
  message(FATAL_ERROR "pkg-config knows version '${version}' and interfaces in '${modules}'")
endif()
ask(cflags --cflags)
separate_arguments(cflags UNIX_COMMAND "${cflags}")
file(WRITE ${WORK}/pkg_config.cpp "#include <shardmesh/version.hpp>\n")
ask(libs --libs)
separate_arguments(libs UNIX_COMMAND "${libs}")
file(GLOB_RECURSE objects ${OBJECTS}/CMakeFiles/consumer.dir/*.o)
foreach(command IN ITEMS "${cflags};-fsyntax-only;${WORK}/pkg_config.cpp" "${objects};${libs};-o;${WORK}/pkg_config_consumer")
  execute_process(COMMAND ${COMPILER} ${command} RESULT_VARIABLE status OUTPUT_VARIABLE text ERROR_VARIABLE text)
  if(NOT status EQUAL 0)
    message("${text}")
    message(FATAL_ERROR "the compiler fails with pkg-config's flags: ${command}")
  endif()
endforeach()
execute_process(COMMAND ${WORK}/pkg_config_consumer RESULT_VARIABLE status OUTPUT_VARIABLE text ERROR_VARIABLE text)
if(NOT status EQUAL 0 OR NOT text MATCHES "bfloat16: 40 bytes")
  message("${text}")
  message(FATAL_ERROR "the program that was linked with pkg-config's flags fails with ${status}")
endif()
