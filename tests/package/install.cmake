# SPDX-License-Identifier: Apache-2.0
# Run by ctest: installs, moves the installation (which all consumers of these tests use), and checks that it does not
# name the folders of the source, the build, or the installation.
file(REMOVE_RECURSE ${WORK}/installed ${WORK}/prefix)
execute_process(
  COMMAND ${CMAKE_COMMAND} --install ${BINARY} --prefix ${WORK}/installed
  RESULT_VARIABLE status
  OUTPUT_VARIABLE text
  ERROR_VARIABLE text
)
if(NOT status EQUAL 0)
  message("${text}")
  message(FATAL_ERROR "cmake --install fails with ${status}")
endif()
file(RENAME ${WORK}/installed ${WORK}/prefix)
foreach(folder IN ITEMS ${SOURCE} ${BINARY} ${WORK})
  execute_process(COMMAND grep -rIF ${folder} ${WORK}/prefix RESULT_VARIABLE status OUTPUT_VARIABLE text ERROR_VARIABLE text)
  if(NOT status EQUAL 1) # 1: no match
    message("${text}")
    message(FATAL_ERROR "files of the prefix name ${folder}")
  endif()
endforeach()
file(GLOB rooms LIST_DIRECTORIES true ${WORK}/prefix/*/shardmesh/modules/*)
foreach(room IN LISTS rooms)
  get_filename_component(name ${room} NAME)
  file(GLOB units RELATIVE ${room} ${room}/*)
  if(IS_DIRECTORY ${room} AND NOT name STREQUAL "std" AND NOT units STREQUAL "${name}.cppm")
    message(FATAL_ERROR "the room ${name} is not one interface: ${units}")
  endif()
endforeach()
list(LENGTH rooms count)
if(count LESS 20)
  message(FATAL_ERROR "${count} rooms are installed")
endif()
