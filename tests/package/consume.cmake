# SPDX-License-Identifier: Apache-2.0
# Run by ctest: configures, builds, and runs the consumer. With REFUSED, checks that configuring fails with one error
# that says why.
file(REMOVE_RECURSE ${BUILD})
set(generator -G Ninja -DCMAKE_MAKE_PROGRAM=${MAKE_PROGRAM})
if(GENERATOR)
  set(generator -G ${GENERATOR})
endif()
execute_process(
  COMMAND
    ${CMAKE_COMMAND} -S ${SOURCE} -B ${BUILD} ${generator} -DCMAKE_CXX_COMPILER=${COMPILER} -DCMAKE_PREFIX_PATH=${PREFIX}
    ${ARGS}
  RESULT_VARIABLE status
  OUTPUT_VARIABLE text
  ERROR_VARIABLE text
)
if(REFUSED)
  string(REGEX MATCHALL "CMake Error" errors "${text}")
  list(LENGTH errors errors)
  if(status EQUAL 0 OR NOT errors EQUAL 1 OR NOT text MATCHES "${REFUSED}")
    message("${text}")
    message(FATAL_ERROR "expected one refusal that matches '${REFUSED}', got status ${status}")
  endif()
  return()
endif()
if(NOT status EQUAL 0)
  message("${text}")
  message(FATAL_ERROR "the consumer does not configure")
endif()
execute_process(COMMAND ${CMAKE_COMMAND} --build ${BUILD} RESULT_VARIABLE status OUTPUT_VARIABLE text ERROR_VARIABLE text)
if(NOT status EQUAL 0)
  message("${text}")
  message(FATAL_ERROR "the consumer does not build")
endif()
if(text MATCHES "warning:")
  message("${text}")
  message(FATAL_ERROR "the installed interfaces are not free of warnings")
endif()
execute_process(COMMAND ${BUILD}/consumer RESULT_VARIABLE status OUTPUT_VARIABLE text ERROR_VARIABLE text)
if(NOT status EQUAL 0 OR NOT text MATCHES "${PRINTS}")
  message("${text}")
  message(FATAL_ERROR "the consumer fails with ${status}")
endif()
