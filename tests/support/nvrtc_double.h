// SPDX-License-Identifier: Apache-2.0
// The C ABI with which a test steers the double of NVRTC (nvrtc_double.cpp).
#pragma once
#include <cstddef>

#define NVRTC_DOUBLE_API extern "C" __attribute__((visibility("default")))

/// Resets the counters and faults.
NVRTC_DOUBLE_API void nvrtc_double_reset();
/// The number of programs that were compiled, also without success, since the reset.
NVRTC_DOUBLE_API int nvrtc_double_compilations();
/// The options of the last compilation, one a line.
NVRTC_DOUBLE_API const char* nvrtc_double_options();
/// From now on, compilations fail, with this log; null: they succeed.
NVRTC_DOUBLE_API void nvrtc_double_fail(const char* log);
/// Changes the version, which is 13.0 after the reset.
NVRTC_DOUBLE_API void nvrtc_double_set_version(int major, int minor);
