# SPDX-License-Identifier: Apache-2.0
# Run by ctest with CONAN_HOME set: makes a package with a generated profile, and runs test_package against it. The
# package is of the tree BUILT (`conan export-pkg`), or without BUILT from source (`conan create`). No remote is
# contacted.
string(REGEX MATCH "^[0-9]+" major "${COMPILER_VERSION}")
# The machine's version, by Debian's package name; the recipe's version ranges must accept it.
function(platform_package reference debian)
  execute_process(
    COMMAND dpkg-query -W -f "\${Version}" ${debian}
    OUTPUT_VARIABLE version
    ERROR_QUIET
  )
  string(REGEX REPLACE "^[0-9]+:" "" version "${version}")
  string(REGEX MATCH "^[0-9]+(\\.[0-9]+)*" version "${version}")
  if(NOT version)
    message(FATAL_ERROR "${debian} is not installed")
  endif()
  set(platform "${platform}${reference}/${version}\n" PARENT_SCOPE)
endfunction()
set(platform)
platform_package(fmt libfmt-dev)
platform_package(range-v3 librange-v3-dev)
platform_package(nlohmann_json nlohmann-json3-dev)
platform_package(simdjson libsimdjson-dev)
platform_package(zlib zlib1g-dev)
platform_package(zstd libzstd-dev)
platform_package(openssl libssl-dev)
platform_package(xxhash libxxhash-dev)
platform_package(isa-l libisal-dev)
platform_package(re2 libre2-dev)
platform_package(cli11 libcli11-dev)

cmake_host_system_information(RESULT machine QUERY OS_PLATFORM)
if(machine STREQUAL "aarch64")
  set(machine armv8)
endif()
string(REPLACE "clang++" "clang" c_compiler "${COMPILER}")
file(
  WRITE ${WORK}/conan.profile
  "[settings]
os=Linux
arch=${machine}
build_type=Release
compiler=clang
compiler.version=${major}
compiler.libcxx=libstdc++11
compiler.cppstd=gnu20
[platform_requires]
${platform}[conf]
tools.build:compiler_executables={'c': '${c_compiler}', 'cpp': '${COMPILER}'}
tools.cmake.cmake_layout:test_folder=$TMP
"
)
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
execute_process(
  COMMAND ${CONAN} ${verb} ${SOURCE} --no-remote --profile:all ${WORK}/conan.profile
  RESULT_VARIABLE status
  OUTPUT_VARIABLE text
  ERROR_VARIABLE text
)
if(NOT status EQUAL 0 OR NOT text MATCHES "bfloat16: 40 bytes")
  message("${text}")
  message(FATAL_ERROR "conan ${verb} fails with ${status}")
endif()
