// SPDX-License-Identifier: Apache-2.0
// libnccl's calls that move data, and groups of them. A group becomes one launch per communicator.
#include "memory.hpp"
#include "nccl_world.hpp"

#include <algorithm>

using namespace gpu_double;

namespace {

struct group {
  int depth = 0;
  int failed = 0;
  std::vector<launch_ref> launches;
};

group& this_group() {
  thread_local group made;
  return made;
}

// Launches it now. For a nonblocking communicator, it may launch later: work that its streams get meanwhile runs first.
int start(const launch_ref& what) {
  communicator& comm = *what->comm;
  if (comm.blocking || engine::the().chance(50)) {
    begin(what);
    return nccl_success;
  }
  comm.deferred.push_back(what);
  engine::the().defer(&comm, [&comm] {
    for (const launch_ref& each : std::exchange(comm.deferred, {})) begin(each);
  });
  return nccl_in_progress;
}

int end_group() {
  group ended = std::exchange(this_group(), {});
  if (ended.failed != 0) return ended.failed;
  int answer = nccl_success;
  for (const launch_ref& each : ended.launches)
    if (const int one = start(each); one != nccl_success) answer = one;
  return answer;
}

bool reaches(const communicator& comm, const char* function, const void* memory, std::size_t bytes) {
  if (bytes == 0) return true;
  const allocation* in = memory_of_the_double().find(memory);
  const bool right = in && (in->kind != memory_kind::device || in->device == comm.device);
  if (right && in->now != allocation::life::freed && in->holds(reinterpret_cast<std::uintptr_t>(memory), bytes))
    return true;
  engine::the().problem(std::string(function) + " of " + comm.name() + " on device " + std::to_string(comm.device) +
                        " of " + std::to_string(bytes) + " bytes " +
                        (in ? "that are not in " + memory_of_the_double().describe(*in) : "that no device reaches"));
  return false;
}

bool is_collective(part_kind kind) {
  return kind != part_kind::send && kind != part_kind::receive;
}

bool reduces(part_kind kind) {
  return kind == part_kind::all_reduce || kind == part_kind::reduce_scatter || kind == part_kind::reduce;
}

int checked(const char* function, communicator& comm, const part& what, const stream* on) {
  if (const int state = state_of(comm); state != nccl_success) {
    if (state != nccl_in_progress) return state;
    engine::the().problem(std::string(function) + " with " + comm.name() + " while an earlier call is in progress");
    return nccl_invalid_argument;
  }
  if (comm.finalizing) return nccl_invalid_usage;
  if (!on || what.type < 0 || what.type > nccl_float8e5m2) return nccl_invalid_argument;
  if (reduces(what.kind) && (what.reduction < 0 || what.reduction > nccl_avg || what.type > nccl_bfloat16))
    return nccl_invalid_argument;
  if (what.peer < 0 || what.peer >= comm.ranks()) return nccl_invalid_argument;
  if (on->device != comm.device) {
    engine::the().problem(std::string(function) + " of " + comm.name() + " on " + on->name());
    return nccl_invalid_argument;
  }
  const std::size_t bytes = what.count * size_of_type(what.type);
  const auto ranks = static_cast<std::size_t>(comm.ranks());
  const bool spread = what.kind == part_kind::reduce_scatter || what.kind == part_kind::all_to_all;
  const bool gathers = what.kind == part_kind::all_gather || what.kind == part_kind::all_to_all;
  const bool reads = what.kind != part_kind::receive && (what.kind != part_kind::broadcast || what.peer == comm.rank);
  const bool writes = what.kind != part_kind::send && (what.kind != part_kind::reduce || what.peer == comm.rank);
  if (reads && !reaches(comm, function, what.from, spread ? bytes * ranks : bytes)) return nccl_invalid_argument;
  if (writes && !reaches(comm, function, what.to, gathers ? bytes * ranks : bytes)) return nccl_invalid_argument;
  return nccl_success;
}

int enqueue(const char* function, void* handle, void* stream_handle, part what) {
  call here(function, rank_of(handle));
  if (engine::current_host_function()) {
    engine::the().problem(std::string(function) + " was called by a host function");
    return nccl_invalid_usage;
  }
  group& in = this_group();
  const auto refuse = [&](int code) {
    if (in.depth > 0 && in.failed == 0) in.failed = code;
    return code;
  };
  communicator* comm = find_communicator(handle, function);
  if (!comm) return refuse(nccl_invalid_argument);
  if (const auto code = here.failed_at_once()) return refuse(*code);
  if (here.is(double_lose_rank)) {
    lose(*comm, here.planted().code);
    return refuse(nccl_system_error);
  }
  stream* on = devices_of_the_double().find_stream(stream_handle, function);
  if (const int no = checked(function, *comm, what, on); no != nccl_success) return refuse(no);
  if (is_collective(what.kind)) {
    if (what.count == 0) return nccl_success;  // nothing to launch
    what.index = comm->collectives++;
  }
  const bool alone = in.depth == 0;
  const auto found = std::ranges::find(in.launches, comm, [](const launch_ref& each) { return each->comm; });
  launch_ref into;
  if (found == in.launches.end()) {
    into = std::make_shared<launch>();
    into->comm = comm;
    in.launches.push_back(into);
  } else {
    into = *found;
  }
  into->parts.push_back(std::move(what));
  if (std::ranges::find(into->streams, on) == into->streams.end()) into->streams.push_back(on);
  if (here.planted().action != 0) into->planted = here.planted();
  return alone ? end_group() : nccl_success;
}

}  // namespace

int ncclGroupStart() {
  call here("ncclGroupStart", -1);
  if (const auto code = here.failed_at_once()) return *code;
  ++this_group().depth;
  return nccl_success;
}

int ncclGroupEnd() {
  call here("ncclGroupEnd", -1);
  if (this_group().depth == 0) {
    engine::the().problem("ncclGroupEnd without ncclGroupStart");
    return nccl_invalid_usage;
  }
  if (const auto code = here.failed_at_once()) {
    this_group() = {};
    return *code;
  }
  return --this_group().depth == 0 ? end_group() : static_cast<int>(nccl_success);
}

int ncclSend(const void* from, std::size_t count, int type, int peer, void* comm, void* stream) {
  return enqueue("ncclSend", comm, stream,
                 {.kind = part_kind::send, .from = from, .count = count, .type = type, .peer = peer});
}

int ncclRecv(void* to, std::size_t count, int type, int peer, void* comm, void* stream) {
  return enqueue("ncclRecv", comm, stream,
                 {.kind = part_kind::receive, .to = to, .count = count, .type = type, .peer = peer});
}

int ncclAllGather(const void* from, void* to, std::size_t count, int type, void* comm, void* stream) {
  return enqueue("ncclAllGather", comm, stream,
                 {.kind = part_kind::all_gather, .from = from, .to = to, .count = count, .type = type});
}

int ncclReduceScatter(const void* from, void* to, std::size_t count, int type, int reduction, void* comm,
                      void* stream) {
  return enqueue("ncclReduceScatter", comm, stream,
                 {.kind = part_kind::reduce_scatter,
                  .from = from,
                  .to = to,
                  .count = count,
                  .type = type,
                  .reduction = reduction});
}

int ncclAllReduce(const void* from, void* to, std::size_t count, int type, int reduction, void* comm, void* stream) {
  return enqueue(
      "ncclAllReduce", comm, stream,
      {.kind = part_kind::all_reduce, .from = from, .to = to, .count = count, .type = type, .reduction = reduction});
}

int ncclReduce(const void* from, void* to, std::size_t count, int type, int reduction, int root, void* comm,
               void* stream) {
  return enqueue("ncclReduce", comm, stream,
                 {.kind = part_kind::reduce,
                  .from = from,
                  .to = to,
                  .count = count,
                  .type = type,
                  .reduction = reduction,
                  .peer = root});
}

int ncclBroadcast(const void* from, void* to, std::size_t count, int type, int root, void* comm, void* stream) {
  return enqueue("ncclBroadcast", comm, stream,
                 {.kind = part_kind::broadcast, .from = from, .to = to, .count = count, .type = type, .peer = root});
}

int ncclAlltoAll(const void* from, void* to, std::size_t count, int type, void* comm, void* stream) {
  return enqueue("ncclAlltoAll", comm, stream,
                 {.kind = part_kind::all_to_all, .from = from, .to = to, .count = count, .type = type});
}
