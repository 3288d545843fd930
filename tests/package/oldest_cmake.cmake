# SPDX-License-Identifier: Apache-2.0
# Run by ctest in the full run: builds the consumer with the oldest supported CMake, in a separate environment.
if(NOT EXISTS ${WORK}/oldest_cmake/bin/cmake)
  file(REMOVE_RECURSE ${WORK}/oldest_cmake)
  foreach(
    command
    IN
    ITEMS
      "${PYTHON};-m;venv;${WORK}/oldest_cmake"
      "${WORK}/oldest_cmake/bin/python;-m;pip;install;-q;--disable-pip-version-check;cmake==3.28.4"
  )
    execute_process(COMMAND ${command} RESULT_VARIABLE status OUTPUT_VARIABLE text ERROR_VARIABLE text)
    if(NOT status EQUAL 0)
      message(FATAL_ERROR "${command}: ${text}")
    endif()
  endforeach()
endif()
execute_process(COMMAND ${WORK}/oldest_cmake/bin/cmake --version OUTPUT_VARIABLE text)
if(NOT text MATCHES "^cmake version 3.28.4\n")
  message(FATAL_ERROR "not the oldest CMake: ${text}")
endif()
execute_process(
  COMMAND
    ${WORK}/oldest_cmake/bin/cmake -DSOURCE=${SOURCE} -DBUILD=${BUILD} -DPREFIX=${PREFIX} -DCOMPILER=${COMPILER}
    -DMAKE_PROGRAM=${MAKE_PROGRAM} "-DPRINTS=bfloat16: 40 bytes" "-DARGS=-DCMAKE_BUILD_TYPE=Release" -P
    ${CMAKE_CURRENT_LIST_DIR}/consume.cmake
  RESULT_VARIABLE status
)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "the consumer fails with CMake 3.28.4")
endif()
