// SPDX-License-Identifier: Apache-2.0
// Checks our declarations of NCCL against its header. Compiling is the test.
#include <nccl.h>

#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <same_abi.hpp>
import shardmesh.nccl;

using shardmesh::nccl::functions;
namespace nccl = shardmesh::nccl;

#define SAME(ours, theirs) static_assert(same_abi<decltype(functions::ours), decltype(&theirs)>)
SAME(get_version, ncclGetVersion);
SAME(get_error_string, ncclGetErrorString);
SAME(get_last_error, ncclGetLastError);
SAME(get_unique_id, ncclGetUniqueId);
SAME(comm_init_rank_config, ncclCommInitRankConfig);
SAME(comm_split, ncclCommSplit);
SAME(comm_get_async_error, ncclCommGetAsyncError);
SAME(comm_finalize, ncclCommFinalize);
SAME(comm_destroy, ncclCommDestroy);
SAME(comm_abort, ncclCommAbort);
SAME(comm_register, ncclCommRegister);
SAME(comm_deregister, ncclCommDeregister);
SAME(group_start, ncclGroupStart);
SAME(group_end, ncclGroupEnd);
SAME(send, ncclSend);
SAME(recv, ncclRecv);
SAME(all_gather, ncclAllGather);
SAME(reduce_scatter, ncclReduceScatter);
SAME(all_reduce, ncclAllReduce);
SAME(broadcast, ncclBroadcast);

static_assert(int{nccl::success} == ncclSuccess);
static_assert(int{nccl::unhandled_cuda_error} == ncclUnhandledCudaError);
static_assert(int{nccl::invalid_argument} == ncclInvalidArgument);
static_assert(int{nccl::invalid_usage} == ncclInvalidUsage);
static_assert(int{nccl::remote_error} == ncclRemoteError);
static_assert(int{nccl::in_progress} == ncclInProgress);
static_assert(int{nccl::no_color} == NCCL_SPLIT_NOCOLOR);
static_assert(int{nccl::type_int8} == ncclInt8);
static_assert(int{nccl::type_uint8} == ncclUint8);
static_assert(int{nccl::type_int32} == ncclInt32);
static_assert(int{nccl::type_uint32} == ncclUint32);
static_assert(int{nccl::type_int64} == ncclInt64);
static_assert(int{nccl::type_uint64} == ncclUint64);
static_assert(int{nccl::type_float16} == ncclFloat16);
static_assert(int{nccl::type_float32} == ncclFloat32);
static_assert(int{nccl::type_float64} == ncclFloat64);
static_assert(int{nccl::type_bfloat16} == ncclBfloat16);
static_assert(int{nccl::sum} == ncclSum);
static_assert(int{nccl::product} == ncclProd);
static_assert(int{nccl::max} == ncclMax);
static_assert(int{nccl::min} == ncclMin);
static_assert(int{nccl::average} == ncclAvg);

// A newer library's configuration begins with ours, which states its own size.
static_assert(sizeof(nccl::unique_id) == sizeof(ncclUniqueId));
static_assert(sizeof(nccl::config) <= sizeof(ncclConfig_t));
static_assert(nccl::undefined == NCCL_CONFIG_UNDEF_INT && nccl::config{}.magic == NCCL_API_MAGIC);
#define SAME_PLACE(ours, theirs) static_assert(offsetof(nccl::config, ours) == offsetof(ncclConfig_t, theirs))
SAME_PLACE(size, size);
SAME_PLACE(magic, magic);
SAME_PLACE(version, version);
SAME_PLACE(blocking, blocking);
SAME_PLACE(cga_cluster_size, cgaClusterSize);
SAME_PLACE(min_ctas, minCTAs);
SAME_PLACE(max_ctas, maxCTAs);
SAME_PLACE(net_name, netName);
SAME_PLACE(split_share, splitShare);
SAME_PLACE(traffic_class, trafficClass);
SAME_PLACE(comm_name, commName);
SAME_PLACE(collnet_enable, collnetEnable);
SAME_PLACE(cta_policy, CTAPolicy);
SAME_PLACE(shrink_share, shrinkShare);
SAME_PLACE(nvls_ctas, nvlsCTAs);

TEST_CASE("our declarations of NCCL are those of its header") {
  SUCCEED("compiled against NCCL " << NCCL_VERSION_CODE);
}
