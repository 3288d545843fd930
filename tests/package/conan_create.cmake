# SPDX-License-Identifier: Apache-2.0
# Run by ctest with CONAN_HOME set: makes a package with the profile of docs/install.md, and runs test_package against
# it. The package is of the tree BUILT (`conan export-pkg`), or without BUILT from source (`conan create`). With
# WITHOUT_CONSUMER, test_package, which compiles all interfaces, is left out. No remote is contacted.
include(${CMAKE_CURRENT_LIST_DIR}/conan_profile.cmake)
shardmesh_conan_profile(${WORK}/conan.profile)
file(REMOVE_RECURSE $ENV{CONAN_HOME})

# Another compiler is refused before anything is built.
file(READ ${WORK}/conan.profile text)
string(REGEX REPLACE "compiler=clang\ncompiler.version=[0-9]+" "compiler=gcc\ncompiler.version=12" text "${text}")
file(WRITE ${WORK}/conan_gcc.profile "${text}")
execute_process(
  COMMAND ${CONAN} graph info ${SOURCE} --no-remote --profile:all ${WORK}/conan_gcc.profile
  OUTPUT_VARIABLE text
  ERROR_VARIABLE text
)
if(NOT text MATCHES "info_invalid: shardmesh is C\\+\\+ modules and needs Clang 19 or newer and Ninja: the compiler is gcc 12")
  message("${text}")
  message(FATAL_ERROR "the recipe does not refuse GCC")
endif()
if(BUILT)
  set(verb export-pkg --conf user.shardmesh:built=${BUILT})
else()
  set(verb create)
endif()
set(prints "bfloat16: 40 bytes")
if(WITHOUT_CONSUMER)
  list(APPEND verb --test-folder=)
  set(prints "Package folder")
endif()
execute_process(
  COMMAND
    ${CONAN} ${verb} ${SOURCE} --no-remote --profile:all ${WORK}/conan.profile --conf tools.cmake.cmake_layout:test_folder=$TMP
  RESULT_VARIABLE status
  OUTPUT_VARIABLE text
  ERROR_VARIABLE text
)
if(NOT status EQUAL 0 OR NOT text MATCHES "${prints}")
  message("${text}")
  message(FATAL_ERROR "conan ${verb} fails with ${status}")
endif()
