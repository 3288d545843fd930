# SPDX-License-Identifier: Apache-2.0
# Run by ctest: compiles SOURCE with COMPILER and FLAGS against the headers and LIBRARY, without a warning, and runs it
# with ARGS. It must print PRINTS and exit with STATUS.
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
get_filename_component(folder ${LIBRARY} DIRECTORY)
execute_process(
  COMMAND ${COMPILER} ${FLAGS} -I${INCLUDE} ${SOURCE} -o ${WORK}/program -L${folder} -lshardmesh_c
  RESULT_VARIABLE status
  OUTPUT_VARIABLE text
  ERROR_VARIABLE text
)
if(NOT status EQUAL 0 OR text MATCHES "warning")
  message(FATAL_ERROR "${COMPILER} does not compile it without a word:\n${text}")
endif()
execute_process(
  COMMAND ${CMAKE_COMMAND} -E env --modify LD_LIBRARY_PATH=path_list_prepend:${folder} ${WORK}/program ${ARGS}
  WORKING_DIRECTORY ${WORK}
  RESULT_VARIABLE status
  OUTPUT_VARIABLE text
  ERROR_VARIABLE text
)
if(NOT status EQUAL "${STATUS}" OR NOT text MATCHES "${PRINTS}")
  message(FATAL_ERROR "the program ends with ${status} (expected ${STATUS}) and prints, instead of '${PRINTS}':\n${text}")
endif()
message("${text}")
