// SPDX-License-Identifier: Apache-2.0
// Libraries of kernels in the double. The calls are in cudart_kernels.cpp.
#pragma once
#include "gpu_double.h"

#include <cstddef>
#include <string>
#include <vector>

namespace gpu_double {

void reset_kernels();
std::vector<std::string> library_leaks();

}  // namespace gpu_double
