# SPDX-License-Identifier: Apache-2.0
# Run by ctest with CONAN_HOME set: the recipe, beside a conandata.yml as in ConanCenter, takes its sources from the
# archive of a release. Lays out recipes/shardmesh as docs/packaging.md says, with an archive of this tree. Builds nothing.
include(${CMAKE_CURRENT_LIST_DIR}/conan_profile.cmake)
file(REMOVE_RECURSE ${WORK} $ENV{CONAN_HOME})
set(release shardmesh-${VERSION})
foreach(
  part
  IN
  ITEMS CMakeLists.txt LICENSE cmake include modules tools
)
  file(COPY ${SOURCE}/${part} DESTINATION ${WORK}/${release})
endforeach()
set(archive ${WORK}/${release}.tar.gz)
execute_process(
  COMMAND ${CMAKE_COMMAND} -E tar czf ${archive} ${release}
  WORKING_DIRECTORY ${WORK}
)
file(SHA256 ${archive} sum)
set(recipe ${WORK}/recipes/shardmesh)
file(COPY ${SOURCE}/conanfile.py ${SOURCE}/test_package DESTINATION ${recipe}/all)
file(WRITE ${recipe}/config.yml "versions:\n  \"${VERSION}\":\n    folder: all\n")
set(data "sources:\n  \"${VERSION}\":\n    url: \"file://${archive}\"\n    sha256: \"${sum}\"\n")
file(WRITE ${recipe}/all/conandata.yml "${data}")
shardmesh_conan_profile(${WORK}/conan.profile)

# conan_says(<status, or a regex of statuses> <arguments...>): the output is in `text`.
function(conan_says expected)
  execute_process(COMMAND ${CONAN} ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE text ERROR_VARIABLE text)
  if(NOT status MATCHES "^(${expected})$")
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "conan ${command} exits ${status}, expected ${expected}:\n${text}")
  endif()
  set(text "${text}" PARENT_SCOPE)
endfunction()

conan_says(0 source ${recipe}/all --version ${VERSION})
if(NOT EXISTS ${recipe}/all/src/modules/shardmesh.cppm)
  message(FATAL_ERROR "the sources of the archive are not in the recipe's folder src:\n${text}")
endif()
file(REMOVE_RECURSE ${recipe}/all/src)
conan_says(0 export ${recipe}/all --version ${VERSION})
conan_says(0 cache path shardmesh/${VERSION})
string(STRIP "${text}" exported)
string(REGEX REPLACE "^.*\n" "" exported "${exported}")
if(NOT EXISTS ${exported}/conandata.yml OR EXISTS ${exported}/../es/CMakeLists.txt)
  message(FATAL_ERROR "the exported recipe does not take its sources from conandata.yml: ${exported}")
endif()
conan_says(
  0
  graph
  info
  ${recipe}/all
  --version
  ${VERSION}
  --no-remote
  --profile:all
  ${WORK}/conan.profile
)
if(text MATCHES "info_invalid: shardmesh")
  message(FATAL_ERROR "the recipe refuses the profile of docs/install.md:\n${text}")
endif()

# An archive that differs from the checksum is refused.
string(REPLACE "${sum}" "0000000000000000000000000000000000000000000000000000000000000000" data "${data}")
file(WRITE ${recipe}/all/conandata.yml "${data}")
conan_says("[1-9]" source ${recipe}/all --version ${VERSION})
if(NOT text MATCHES "sha256 hash failed")
  message(FATAL_ERROR "conan source fails for another reason:\n${text}")
endif()
