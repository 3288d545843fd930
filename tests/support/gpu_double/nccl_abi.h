// SPDX-License-Identifier: Apache-2.0
// The part of libnccl's C ABI (2.27 and later) that the double has: handles are void*, enumerations int. A test
// compares all of it with the real header. nccl_functions.inc lists the functions, and nccl_*.cpp implements them.
#pragma once
#include <climits>
#include <cstddef>

namespace gpu_double {

inline constexpr int nccl_version = 22803;

enum nccl_result : int {
  nccl_success = 0,
  nccl_unhandled_cuda_error = 1,
  nccl_system_error = 2,
  nccl_internal_error = 3,
  nccl_invalid_argument = 4,
  nccl_invalid_usage = 5,
  nccl_remote_error = 6,
  nccl_in_progress = 7,
};
enum nccl_type : int {
  nccl_int8 = 0,
  nccl_uint8 = 1,
  nccl_int32 = 2,
  nccl_uint32 = 3,
  nccl_int64 = 4,
  nccl_uint64 = 5,
  nccl_float16 = 6,
  nccl_float32 = 7,
  nccl_float64 = 8,
  nccl_bfloat16 = 9,
  nccl_float8e4m3 = 10,
  nccl_float8e5m2 = 11,
};
enum nccl_reduction : int { nccl_sum = 0, nccl_prod = 1, nccl_max = 2, nccl_min = 3, nccl_avg = 4 };

struct nccl_unique_id {
  char internal[128];
};

inline constexpr unsigned nccl_config_magic = 0xcafebeef;
inline constexpr int nccl_undefined = INT_MIN;
inline constexpr int nccl_no_color = -1;

/// ncclConfig_t of 2.27. Later versions append fields; `size` tells which.
struct nccl_config {
  std::size_t size;
  unsigned magic;
  unsigned version;
  int blocking;
  int cga_cluster_size;
  int min_ctas;
  int max_ctas;
  const char* net_name;
  int split_share;
  int traffic_class;
  const char* comm_name;
  int collnet_enable;
  int cta_policy;
  int shrink_share;
  int nvls_ctas;
};

}  // namespace gpu_double

#ifndef GPU_DOUBLE_TYPES_ONLY
#define NCCL_DOUBLE_FUNCTION(result, name, parameters) \
  extern "C" __attribute__((visibility("default"))) result name parameters;
#include "nccl_functions.inc"
#undef NCCL_DOUBLE_FUNCTION
#endif
