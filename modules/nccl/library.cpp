// SPDX-License-Identifier: Apache-2.0
module;
#include "includes.hpp"
module shardmesh.nccl;

namespace shardmesh::nccl {
namespace {

constexpr int oldest_version = 22700;

result<functions> functions_of(const cuda::shared_library& library) {
  functions made;
  cuda::function_loader load(library);
  load("ncclGetVersion", made.get_version);
  load("ncclGetErrorString", made.get_error_string);
  load("ncclGetLastError", made.get_last_error);
  load("ncclGetUniqueId", made.get_unique_id);
  load("ncclCommInitRankConfig", made.comm_init_rank_config);
  load("ncclCommSplit", made.comm_split);
  load("ncclCommGetAsyncError", made.comm_get_async_error);
  load("ncclCommFinalize", made.comm_finalize);
  load("ncclCommDestroy", made.comm_destroy);
  load("ncclCommAbort", made.comm_abort);
  load("ncclCommRegister", made.comm_register);
  load("ncclCommDeregister", made.comm_deregister);
  load("ncclGroupStart", made.group_start);
  load("ncclGroupEnd", made.group_end);
  load("ncclSend", made.send);
  load("ncclRecv", made.recv);
  load("ncclAllGather", made.all_gather);
  load("ncclReduceScatter", made.reduce_scatter);
  load("ncclAllReduce", made.all_reduce);
  load("ncclBroadcast", made.broadcast);
  SHARDMESH_TRY(load.outcome());
  return made;
}

}  // namespace

result<library> library::load(const std::string& path) {
  library made;
  SHARDMESH_TRY(made.library_, cuda::shared_library::open("NCCL", path, "SHARDMESH_NCCL", {"libnccl.so.2"}));
  SHARDMESH_TRY(functions table, functions_of(made.library_));
  made.functions_ = std::make_shared<const functions>(table);
  SHARDMESH_TRY(made.check(table.get_version(&made.version_), "ncclGetVersion", {device_type::cuda, -1}));
  if (made.version_ < oldest_version)
    return fail(errc::unsupported, made.library_.name() + " is too old")
        .with_values("NCCL " + version_text(oldest_version) + " or newer", version_text(made.version_));
  return made;
}

result<void> library::check(int code, std::string_view operation, device where, void* comm) const {
  if (code == success || code == in_progress) return {};
  const char* const text = call().get_error_string(code);
  const char* const details = call().get_last_error(comm);
  std::string message = std::string(operation) + " on " + to_string(where) +
                        " failed: " + (text != nullptr ? text : "an unknown error") + " (NCCL error " +
                        std::to_string(code) + ")";
  if (details != nullptr && *details != '\0') message += ": " + std::string(details);
  while (message.ends_with('\n')) message.pop_back();
  return fail(errc::communication, std::move(message));
}

std::string version_text(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

}  // namespace shardmesh::nccl
