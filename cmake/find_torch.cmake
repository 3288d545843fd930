# SPDX-License-Identifier: Apache-2.0
# Finds LibTorch for the room torch. Sets LibTorch_FOUND; if it is false, SHARDMESH_TORCH_MISSING holds the reason.
if(SHARDMESH_WITH_TORCH STREQUAL "AUTO" AND SHARDMESH_SANITIZE)
  set(SHARDMESH_TORCH_MISSING "LibTorch is not built for sanitizers")
elseif(SHARDMESH_WITH_TORCH)
  find_package(LibTorch 2.11 QUIET) # cmake/FindLibTorch.cmake
  set(
    SHARDMESH_TORCH_MISSING
    "no LibTorch of version 2.11 or newer was found (Torch_DIR or CMAKE_PREFIX_PATH names one, \
SHARDMESH_PYTHON a Python that has PyTorch; ./dev setup test brings one)"
  )
  if(LibTorch_FOUND)
    message(STATUS "LibTorch ${LibTorch_VERSION} (${LibTorch_INCLUDE_DIR})")
  elseif(SHARDMESH_WITH_TORCH STREQUAL "AUTO")
    message(STATUS "the room torch is not built: ${SHARDMESH_TORCH_MISSING}")
  else()
    message(FATAL_ERROR "SHARDMESH_WITH_TORCH is ${SHARDMESH_WITH_TORCH}: ${SHARDMESH_TORCH_MISSING}")
  endif()
else()
  set(SHARDMESH_TORCH_MISSING "SHARDMESH_WITH_TORCH is ${SHARDMESH_WITH_TORCH}")
endif()
