# SPDX-License-Identifier: Apache-2.0
# Writes the Conan profile of docs/install.md to a file, with this machine's architecture, compiler, and versions. The
# page has those of Debian 12; the recipe's version ranges must accept the machine's.
#
#   shardmesh_conan_profile(<file>)     needs SOURCE, CONAN, COMPILER, and COMPILER_VERSION
set(debian_fmt libfmt-dev)
set(debian_range-v3 librange-v3-dev)
set(debian_nlohmann_json nlohmann-json3-dev)
set(debian_tomlplusplus libtomlplusplus-dev)
set(debian_simdjson libsimdjson-dev)
set(debian_zlib zlib1g-dev)
set(debian_zstd libzstd-dev)
set(debian_openssl libssl-dev)
set(debian_xxhash libxxhash-dev)
set(debian_isa-l libisal-dev)
set(debian_re2 libre2-dev)
set(debian_cli11 libcli11-dev)

# Sets `result` to the version that the machine has of a package in the profile.
function(shardmesh_machine_version result name)
  if(name STREQUAL "cmake")
    set(version ${CMAKE_VERSION})
  elseif(name STREQUAL "ninja")
    execute_process(COMMAND ${NINJA} --version OUTPUT_VARIABLE version)
  elseif(DEFINED debian_${name})
    execute_process(
      COMMAND dpkg-query -W -f "\${Version}" ${debian_${name}}
      OUTPUT_VARIABLE version
      ERROR_QUIET
    )
    string(REGEX REPLACE "^[0-9]+:" "" version "${version}")
  else()
    message(FATAL_ERROR "the profile of docs/install.md names ${name}, whose Debian package this test does not know")
  endif()
  string(REGEX MATCH "^[0-9]+(\\.[0-9]+)*" version "${version}")
  if(NOT version)
    message(FATAL_ERROR "${name} is not installed")
  endif()
  set(${result} ${version} PARENT_SCOPE)
endfunction()

function(shardmesh_conan_profile file)
  file(READ ${SOURCE}/docs/install.md page)
  if(NOT page MATCHES "```ini\n(.settings.\n[^`]*)```")
    message(FATAL_ERROR "docs/install.md has no profile")
  endif()
  set(profile "${CMAKE_MATCH_1}")
  string(REGEX MATCHALL "\n[a-z0-9_-]+/[0-9.]+" packages "${profile}")
  foreach(package IN LISTS packages)
    string(REGEX MATCH "[a-z0-9_-]+" name "${package}")
    shardmesh_machine_version(version ${name})
    string(REPLACE "${package}\n" "\n${name}/${version}\n" profile "${profile}")
  endforeach()
  cmake_host_system_information(RESULT machine QUERY OS_PLATFORM)
  if(machine STREQUAL "aarch64")
    set(machine armv8)
  endif()
  string(REGEX MATCH "^[0-9]+" major "${COMPILER_VERSION}")
  string(REPLACE "clang++" "clang" c_compiler "${COMPILER}")
  foreach(
    change
    IN
    ITEMS
      "arch=x86_64|arch=${machine}"
      "compiler.version=19|compiler.version=${major}"
      "'clang-19'|'${c_compiler}'"
      "'clang++-19'|'${COMPILER}'"
  )
    string(REGEX MATCH "^[^|]*" old "${change}")
    string(REGEX REPLACE "^[^|]*\\|" "" new "${change}")
    string(FIND "${profile}" "${old}" at)
    if(at EQUAL -1)
      message(FATAL_ERROR "the profile of docs/install.md has no ${old}")
    endif()
    string(REPLACE "${old}" "${new}" profile "${profile}")
  endforeach()
  file(WRITE ${file} "${profile}")
endfunction()
