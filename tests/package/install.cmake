# SPDX-License-Identifier: Apache-2.0
# Run by ctest: installs, moves what was installed (what every consumer of these tests then uses), and looks for the
# folders of the source, the build and the installation in it.
file(REMOVE_RECURSE ${WORK}/installed ${WORK}/prefix)
execute_process(COMMAND ${CMAKE_COMMAND} --install ${BINARY} --prefix ${WORK}/installed
  RESULT_VARIABLE status OUTPUT_VARIABLE text ERROR_VARIABLE text)
if(NOT status EQUAL 0)
  message("${text}")
  message(FATAL_ERROR "cmake --install fails with ${status}")
endif()
file(RENAME ${WORK}/installed ${WORK}/prefix)
foreach(folder IN ITEMS ${SOURCE} ${BINARY} ${WORK})
  execute_process(COMMAND grep -rIF ${folder} ${WORK}/prefix RESULT_VARIABLE status OUTPUT_VARIABLE text ERROR_VARIABLE text)
  if(NOT status EQUAL 1) # 1: nothing was found
    message("${text}")
    message(FATAL_ERROR "files of the prefix name ${folder}")
  endif()
endforeach()
