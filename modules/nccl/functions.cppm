// SPDX-License-Identifier: Apache-2.0
// The functions of NCCL that this library calls, as a table that is filled at run time. They are declared here instead
// of included, so that one build runs with and without NCCL; tests/unit/nccl compares them with the real header. The
// partition library loads them.
export module shardmesh.nccl:functions;

import shardmesh.std;

export namespace shardmesh::nccl {

/// The values of NCCL's enums that are used here. In the functions below, enums are `int`.
enum : int {
  success = 0,
  unhandled_cuda_error = 1,
  invalid_argument = 4,
  invalid_usage = 5,
  remote_error = 6,
  in_progress = 7,
  no_color = -1,  // NCCL_SPLIT_NOCOLOR
};
enum data_type : int {
  type_int8 = 0,
  type_uint8 = 1,
  type_int32 = 2,
  type_uint32 = 3,
  type_int64 = 4,
  type_uint64 = 5,
  type_float16 = 6,
  type_float32 = 7,
  type_float64 = 8,
  type_bfloat16 = 9,
};
enum reduction : int { sum = 0, product = 1, max = 2, min = 3, average = 4 };

/// ncclUniqueId, passed by value.
struct unique_id {
  char internal[128] = {};
};

/// The value in a `config` that leaves a choice to the library.
inline constexpr int undefined = std::numeric_limits<int>::min();

/// ncclConfig_t of NCCL 2.27. `size` and `version` identify it, and newer libraries read only the first `size` bytes.
struct config {
  std::size_t size = sizeof(config);
  unsigned magic = 0xcafebeef;
  unsigned version = 22703;
  int blocking = undefined;
  int cga_cluster_size = undefined;
  int min_ctas = undefined;
  int max_ctas = undefined;
  const char* net_name = nullptr;
  int split_share = undefined;
  int traffic_class = undefined;
  const char* comm_name = nullptr;
  int collnet_enable = undefined;
  int cta_policy = undefined;
  int shrink_share = undefined;
  int nvls_ctas = undefined;
};

/// One pointer per function of the library. Communicators, streams, and registrations are opaque pointers. A loaded
/// table has no null pointer.
struct functions {
  int (*get_version)(int* version) = nullptr;
  const char* (*get_error_string)(int code) = nullptr;
  const char* (*get_last_error)(void* comm) = nullptr;
  int (*get_unique_id)(unique_id* id) = nullptr;

  int (*comm_init_rank_config)(void** comm, int size, unique_id id, int rank, config* configuration) = nullptr;
  int (*comm_split)(void* comm, int color, int key, void** made, config* configuration) = nullptr;
  int (*comm_get_async_error)(void* comm, int* state) = nullptr;
  int (*comm_finalize)(void* comm) = nullptr;
  int (*comm_destroy)(void* comm) = nullptr;
  int (*comm_abort)(void* comm) = nullptr;
  int (*comm_register)(void* comm, void* address, std::size_t size, void** handle) = nullptr;
  int (*comm_deregister)(void* comm, void* handle) = nullptr;

  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;
  int (*send)(const void* from, std::size_t count, int type, int peer, void* comm, void* stream) = nullptr;
  int (*recv)(void* to, std::size_t count, int type, int peer, void* comm, void* stream) = nullptr;
  int (*all_gather)(const void* from, void* to, std::size_t count, int type, void* comm, void* stream) = nullptr;
  int (*reduce_scatter)(const void* from, void* to, std::size_t count, int type, int reduction, void* comm,
                        void* stream) = nullptr;
  int (*all_reduce)(const void* from, void* to, std::size_t count, int type, int reduction, void* comm,
                    void* stream) = nullptr;
  int (*broadcast)(const void* from, void* to, std::size_t count, int type, int root, void* comm,
                   void* stream) = nullptr;
};

}  // namespace shardmesh::nccl
