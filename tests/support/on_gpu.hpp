// SPDX-License-Identifier: Apache-2.0
// Whether tests that are written for the double run on a GPU: tests/gpu/real_libraries.cpp then takes the double's
// place, and kernels cannot be functions of the host. tests/gpu/kit sets the variable. Include before imports.
#pragma once
#include <cstdlib>

/// SHARDMESH_TEST_ON_GPU=1.
inline bool tests_run_on_gpu() {
  const char* const value = std::getenv("SHARDMESH_TEST_ON_GPU");
  return value != nullptr && *value == '1';
}
