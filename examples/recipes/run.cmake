# SPDX-License-Identifier: Apache-2.0
# Run by ctest: runs COMMAND with ARGS in an empty folder WORK, in which `checkpoint` is a copy of DATA; then with AGAIN,
# unless it is empty. Both must exit with STATUS, and together they must print PRINTS. The folder TOOLS is first in PATH.
file(REMOVE_RECURSE ${WORK})
file(COPY ${DATA}/ DESTINATION ${WORK}/checkpoint)
if(EXISTS ${WORK}/checkpoint/.metadata)
  file(TOUCH ${WORK}/checkpoint/.metadata) # git keeps no times; PyTorch writes the metadata last
endif()
set(ENV{PATH} "${TOOLS}:$ENV{PATH}")
set(all)
foreach(arguments IN ITEMS ARGS AGAIN)
  if(arguments STREQUAL "AGAIN" AND AGAIN STREQUAL "")
    break()
  endif()
  execute_process(
    COMMAND ${COMMAND} ${${arguments}}
    WORKING_DIRECTORY ${WORK}
    RESULT_VARIABLE status
    OUTPUT_VARIABLE text
    ERROR_VARIABLE text
  )
  string(APPEND all "${text}")
  if(NOT status EQUAL "${STATUS}")
    message(FATAL_ERROR "the program ends with ${status} (expected ${STATUS}):\n${all}")
  endif()
endforeach()
if(NOT all MATCHES "${PRINTS}")
  message(FATAL_ERROR "the program does not print '${PRINTS}':\n${all}")
endif()
message("${all}")
