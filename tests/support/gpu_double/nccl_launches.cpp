// SPDX-License-Identifier: Apache-2.0
// Turns a group's calls into operations on streams, and ends launches that an abort or a dead rank leaves behind.
#include "memory.hpp"
#include "nccl_world.hpp"

#include <algorithm>
#include <cstring>

namespace gpu_double {
namespace {

std::size_t received_bytes(const part& what) {
  const std::size_t bytes = what.count * size_of_type(what.type);
  const auto ranks = static_cast<std::size_t>(what.in->comm->ranks());
  switch (what.kind) {
    case part_kind::send:
      return 0;
    case part_kind::all_gather:
    case part_kind::all_to_all:
      return bytes * ranks;
    case part_kind::reduce:
      return what.peer == what.in->comm->rank ? bytes : 0;
    default:
      return bytes;
  }
}

std::size_t sent_bytes(const part& what) {
  const std::size_t bytes = what.count * size_of_type(what.type);
  const auto ranks = static_cast<std::size_t>(what.in->comm->ranks());
  switch (what.kind) {
    case part_kind::receive:
      return 0;
    case part_kind::reduce_scatter:
    case part_kind::all_to_all:
      return bytes * ranks;
    case part_kind::broadcast:
      return what.peer == what.in->comm->rank ? bytes : 0;
    default:
      return bytes;
  }
}

void arrive(const launch_ref& what) {
  communicator& comm = *what->comm;
  what->begun = true;
  if (what->abandoned) return engine::the().release(what->op);
  if (what->planted.action == double_fail_later) {
    comm.error = what->planted.code;
    comm.last_error = "a failure that was planted";
    return;
  }
  if (comm.lost || comm.error != 0 || what->planted.action == double_hang) return;
  if (!memory_of_the_double().allows(*what->op)) {
    engine::the().device_error(comm.device) = cuda_illegal_address;
    comm.error = nccl_unhandled_cuda_error;
    what->abandoned = true;
    return engine::the().release(what->op);
  }
  if (what->parts.empty()) return engine::the().release(what->op);
  post(*what);
}

// The data that an aborted launch received is undefined: some of it, or nothing.
void finish(const launch_ref& what) {
  if (what->abandoned) withdraw(*what);
  for (part& each : what->parts) {
    if (each.result.empty()) continue;
    std::size_t bytes = each.result.size();
    if (what->abandoned) bytes = static_cast<std::size_t>(engine::the().draw(bytes + 1));
    std::memcpy(each.to, each.result.data(), bytes);
  }
  std::erase(what->comm->launches, what);
}

}  // namespace

void begin(const launch_ref& what) {
  communicator& comm = *what->comm;
  auto op = std::make_shared<operation>();
  what->op = op;
  what->unmatched = what->parts.size();
  op->what = (what->parts.size() == 1 ? describe(what->parts[0]) : "a group of " + std::to_string(what->parts.size())) +
             " of " + comm.name();
  op->device = comm.device;
  std::vector<operation_ref> after{comm.last};
  std::size_t number = 0;
  for (part& each : what->parts) {
    each.in = what.get();
    ++number;
    if (const std::size_t bytes = sent_bytes(each); bytes > 0)
      op->accesses.push_back({reinterpret_cast<std::uintptr_t>(each.from), bytes, false, 1, 0, number});
    if (const std::size_t bytes = received_bytes(each); bytes > 0)
      op->accesses.push_back({reinterpret_cast<std::uintptr_t>(each.to), bytes, true, 1, 0, number});
  }
  op->arrive = [what] { arrive(what); };
  op->body = [what] { finish(what); };
  comm.last = op;
  comm.launches.push_back(what);
  for (const stream* each : what->streams) after.push_back(each->last);
  devices_of_the_double().append(*what->streams[0], op, std::move(after));
  for (stream* each : what->streams) each->last = op;
}

void abandon(communicator& comm) {
  comm.aborted = true;
  engine::the().drop_deferred(&comm);
  comm.deferred.clear();
  for (const launch_ref& each : comm.launches) {
    if (each->unmatched == 0 && each->begun) continue;  // only its end is missing
    each->abandoned = true;
    withdraw(*each);
    if (each->begun) engine::the().release(each->op);
  }
  engine::the().changed();
}

void lose(communicator& comm, int code) {
  comm.lost = true;
  comm.error = nccl_system_error;
  comm.last_error = "this rank was made to be lost";
  if (code == 0) return;
  for (communicator* each : comm.in->members)
    if (each && each != &comm && each->error == 0) {
      each->error = code;
      each->last_error = "lost " + comm.name();
      each->polls_left = static_cast<unsigned>(engine::the().draw(4));
    }
}

}  // namespace gpu_double
