# SPDX-License-Identifier: Apache-2.0
# Every third-party library, found once. All are private to .cpp units; see docs/design.md section 6.
find_package(Threads REQUIRED)
find_package(fmt REQUIRED CONFIG)
find_package(range-v3 REQUIRED CONFIG)
find_package(nlohmann_json REQUIRED CONFIG)
find_package(simdjson REQUIRED CONFIG)
find_package(ZLIB REQUIRED)
find_package(zstd REQUIRED CONFIG)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
find_package(xxHash REQUIRED)     # cmake/FindxxHash.cmake
find_package(libdeflate REQUIRED) # cmake/Findlibdeflate.cmake
find_package(RE2 REQUIRED)        # cmake/FindRE2.cmake
if(TARGET zstd::libzstd_shared)
  set(SHARDMESH_ZSTD zstd::libzstd_shared)
else()
  set(SHARDMESH_ZSTD zstd::libzstd_static)
endif()

# Optional rooms. AUTO builds what the machine has; an installed package says which components it holds.
if(SHARDMESH_WITH_MPI STREQUAL "AUTO")
  find_package(MPIC) # cmake/FindMPIC.cmake
elseif(SHARDMESH_WITH_MPI)
  find_package(MPIC REQUIRED)
endif()
include(cmake/find_kokkos.cmake)
include(cmake/find_python.cmake)
include(cmake/find_torch.cmake)
