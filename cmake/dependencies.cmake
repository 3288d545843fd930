# SPDX-License-Identifier: Apache-2.0
# Every third-party library, found once. All are private to .cpp units; see docs/architecture.md, "Dependencies".
include(cmake/third_parties.cmake)
shardmesh_third_party(threads TARGET Threads::Threads FIND Threads FLAGS -pthread)
shardmesh_third_party(fmt TARGET fmt::fmt FIND fmt CONFIG LICENSE MIT FLAGS -lfmt PURL pkg:github/fmtlib/fmt)
shardmesh_third_party(
  range-v3
  TARGET range-v3::range-v3
  FIND range-v3 CONFIG
  LICENSE BSL-1.0
  PURL pkg:github/ericniebler/range-v3
)
shardmesh_third_party(
  nlohmann-json
  TARGET nlohmann_json::nlohmann_json
  FIND nlohmann_json CONFIG
  LICENSE MIT
  PURL pkg:github/nlohmann/json
)
shardmesh_third_party(
  tomlplusplus
  TARGET TomlPlusPlus::headers
  FIND TomlPlusPlus 3.3
  LICENSE MIT
  PURL pkg:github/marzer/tomlplusplus
)
shardmesh_third_party(zlib TARGET ZLIB::ZLIB FIND ZLIB LICENSE Zlib FLAGS -lz PURL pkg:github/madler/zlib)
shardmesh_third_party(
  zstd
  TARGET zstd::libzstd_shared zstd::libzstd_static
  FIND zstd CONFIG
  LICENSE "BSD-3-Clause OR GPL-2.0-only"
  FLAGS -lzstd
  PURL pkg:github/facebook/zstd
)
shardmesh_third_party(
  openssl
  TARGET OpenSSL::Crypto
  FIND OpenSSL COMPONENTS Crypto
  VERSION OPENSSL_VERSION
  LICENSE Apache-2.0
  FLAGS -lcrypto
  PURL pkg:github/openssl/openssl
)
shardmesh_third_party(
  xxhash
  TARGET xxHash::xxhash
  FIND xxHash
  LICENSE BSD-2-Clause
  FLAGS -lxxhash
  PURL pkg:github/Cyan4973/xxHash
)
shardmesh_third_party(isa-l TARGET ISAL::isal FIND ISAL LICENSE BSD-3-Clause FLAGS -lisal PURL pkg:github/intel/isa-l)
shardmesh_third_party(re2 TARGET RE2::re2 FIND RE2 LICENSE BSD-3-Clause FLAGS -lre2 PURL pkg:github/google/re2)
if(SHARDMESH_BUILD_TOOLS)
  shardmesh_third_party(
    simdjson
    TARGET simdjson::simdjson
    FIND simdjson CONFIG
    LICENSE Apache-2.0
    FLAGS -lsimdjson
    PURL pkg:github/simdjson/simdjson
  )
  shardmesh_third_party(cli11 TARGET CLI11::CLI11 FIND CLI11 CONFIG LICENSE BSD-3-Clause PURL pkg:github/CLIUtils/CLI11)
endif()

# Optional rooms. AUTO builds those that the machine supports; an installed package lists its components.
if(SHARDMESH_WITH_MPI STREQUAL "AUTO")
  find_package(MPIC) # cmake/FindMPIC.cmake
elseif(SHARDMESH_WITH_MPI)
  find_package(MPIC REQUIRED)
endif()
if(SHARDMESH_WITH_REMOTE STREQUAL "AUTO")
  find_package(CURL 7.88 QUIET)
  find_package(pugixml 1.11 CONFIG QUIET)
  if(NOT CURL_FOUND OR NOT pugixml_FOUND)
    message(
      STATUS
      "the room remote is not built: it needs libcurl 7.88 and pugixml (Debian: libcurl4-openssl-dev, libpugixml-dev)"
    )
  endif()
elseif(SHARDMESH_WITH_REMOTE)
  find_package(CURL 7.88 REQUIRED)
  find_package(pugixml 1.11 CONFIG REQUIRED)
endif()
include(cmake/find_kokkos.cmake)
include(cmake/find_python.cmake)
include(cmake/find_torch.cmake)
include(cmake/find_cuda.cmake)
if(MPIC_FOUND)
  set(facts LICENSE LicenseRef-MPI PURL pkg:generic/mpi) # the vendor is unknown
  file(STRINGS ${MPIC_INCLUDE_DIR}/mpi.h open_mpi REGEX "define OPEN_MPI" LIMIT_COUNT 1)
  if(open_mpi)
    set(facts LICENSE BSD-3-Clause-Open-MPI PURL pkg:github/open-mpi/ompi)
  endif()
  shardmesh_third_party(mpi TARGET MPIC::mpi FIND MPIC FOUND_ALREADY FLAGS -lmpi ${facts})
endif()
if(CURL_FOUND AND pugixml_FOUND)
  if(NOT CURL_VERSION) # CMake's own module sets the other variable
    set(CURL_VERSION ${CURL_VERSION_STRING})
  endif()
  # A static libcurl is linked. A shared one is loaded when it is needed, by the name that the loader knows (libcurl.so.4).
  set(SHARDMESH_STATIC_CURL CURL::libcurl)
  set(SHARDMESH_CURL_LIBRARY)
  get_target_property(curl_type CURL::libcurl TYPE)
  if(NOT curl_type STREQUAL "INTERFACE_LIBRARY")
    get_target_property(curl_location CURL::libcurl LOCATION)
    file(REAL_PATH "${curl_location}" curl_location)
    if(curl_location MATCHES "(libcurl[^/]*\\.so\\.[0-9]+)[^/]*$")
      set(SHARDMESH_CURL_LIBRARY ${CMAKE_MATCH_1})
      set(SHARDMESH_STATIC_CURL)
    endif()
  endif()
  shardmesh_third_party(
    curl
    TARGET CURL::libcurl
    FIND CURL 7.88
    FOUND_ALREADY
    LICENSE curl
    FLAGS -lcurl
    PURL pkg:github/curl/curl
  )
  shardmesh_third_party(
    pugixml
    TARGET pugixml::pugixml
    FIND pugixml 1.11 CONFIG
    FOUND_ALREADY
    LICENSE MIT
    FLAGS -lpugixml
    PURL pkg:github/zeux/pugixml
  )
endif()
if(Kokkos_FOUND)
  shardmesh_third_party(
    kokkos
    TARGET Kokkos::kokkos
    FIND Kokkos
    FOUND_ALREADY
    LICENSE "Apache-2.0 WITH LLVM-exception"
    PURL pkg:github/kokkos/kokkos
  )
endif()
if(LibTorch_FOUND)
  shardmesh_third_party(
    libtorch
    TARGET LibTorch::LibTorch
    FIND LibTorch
    FOUND_ALREADY
    LICENSE BSD-3-Clause
    PURL pkg:github/pytorch/pytorch
  )
endif()
