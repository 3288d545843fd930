// SPDX-License-Identifier: Apache-2.0
// Checks the double's declarations of libnccl against the real header. Compiling is the test.
#include <catch2/catch_test_macros.hpp>

#include <nccl.h>

#include <same_abi.hpp>

#define GPU_DOUBLE_TYPES_ONLY
#include "gpu_double/nccl_abi.h"

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)  // the first version with ncclAlltoAll
#define NCCL_DOUBLE_FUNCTION(result, name, parameters) static_assert(same_abi<result(*) parameters, decltype(&::name)>);
#include "gpu_double/nccl_functions.inc"
#endif

using namespace gpu_double;

#define SAME(ours, theirs) static_assert(static_cast<long>(ours) == static_cast<long>(theirs))
SAME(nccl_success, ncclSuccess);
SAME(nccl_unhandled_cuda_error, ncclUnhandledCudaError);
SAME(nccl_system_error, ncclSystemError);
SAME(nccl_internal_error, ncclInternalError);
SAME(nccl_invalid_argument, ncclInvalidArgument);
SAME(nccl_invalid_usage, ncclInvalidUsage);
SAME(nccl_remote_error, ncclRemoteError);
SAME(nccl_in_progress, ncclInProgress);
SAME(nccl_int8, ncclInt8);
SAME(nccl_uint8, ncclUint8);
SAME(nccl_int32, ncclInt32);
SAME(nccl_uint32, ncclUint32);
SAME(nccl_int64, ncclInt64);
SAME(nccl_uint64, ncclUint64);
SAME(nccl_float16, ncclFloat16);
SAME(nccl_float32, ncclFloat32);
SAME(nccl_float64, ncclFloat64);
SAME(nccl_bfloat16, ncclBfloat16);
SAME(nccl_float8e4m3, ncclFloat8e4m3);
SAME(nccl_float8e5m2, ncclFloat8e5m2);
SAME(nccl_sum, ncclSum);
SAME(nccl_prod, ncclProd);
SAME(nccl_max, ncclMax);
SAME(nccl_min, ncclMin);
SAME(nccl_avg, ncclAvg);
SAME(nccl_undefined, NCCL_CONFIG_UNDEF_INT);
SAME(nccl_no_color, NCCL_SPLIT_NOCOLOR);
SAME(sizeof(nccl_unique_id), sizeof(ncclUniqueId));
// A newer configuration begins like that of 2.27.
static_assert(sizeof(nccl_config) <= sizeof(ncclConfig_t));
SAME(offsetof(nccl_config, blocking), offsetof(ncclConfig_t, blocking));
SAME(offsetof(nccl_config, net_name), offsetof(ncclConfig_t, netName));
SAME(offsetof(nccl_config, comm_name), offsetof(ncclConfig_t, commName));
SAME(offsetof(nccl_config, nvls_ctas), offsetof(ncclConfig_t, nvlsCTAs));

TEST_CASE("the double declares nccl as the real header does") {
  const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  CHECK(theirs.magic == nccl_config_magic);
  CHECK(theirs.blocking == nccl_undefined);
}
