# SPDX-License-Identifier: Apache-2.0
# Builds the object of one case, and checks the compiler's output.
#   cmake -D BUILD=folder -D OBJECT=path -D SAYS=sentence -D NOTES=n -P check_case.cmake
# The first error must contain the sentence (plain text, not a pattern) and be the only one. The compiler may print at
# most NOTES notes.
execute_process(
  COMMAND ${CMAKE_COMMAND} --build ${BUILD} --target ${OBJECT}
  OUTPUT_VARIABLE printed
  ERROR_VARIABLE printed
  RESULT_VARIABLE status
)
if(status EQUAL 0)
  message(FATAL_ERROR "${OBJECT} compiles")
endif()
# Characters that CMake treats as list syntax.
string(REPLACE ";" "," printed "${printed}")
string(REPLACE "[" "(" printed "${printed}")
string(REPLACE "]" ")" printed "${printed}")
string(REGEX MATCHALL "[^\n]*: error: [^\n]*" errors "${printed}")
string(REGEX MATCHALL "[^\n]*: note: [^\n]*" notes "${printed}")
list(LENGTH errors error_count)
list(LENGTH notes note_count)
if(error_count EQUAL 0)
  message(FATAL_ERROR "the compiler prints no error:\n${printed}")
endif()
list(GET errors 0 first)
string(FIND "${first}" "${SAYS}" at)
if(at EQUAL -1)
  message(FATAL_ERROR "the first error does not say \"${SAYS}\":\n${printed}")
endif()
if(error_count GREATER 1)
  message(FATAL_ERROR "${error_count} errors where one is enough:\n${printed}")
endif()
if(note_count GREATER ${NOTES})
  message(FATAL_ERROR "${note_count} notes, more than ${NOTES}:\n${printed}")
endif()
message(STATUS "${first}")
