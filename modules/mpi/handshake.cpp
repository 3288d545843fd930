// SPDX-License-Identifier: Apache-2.0
// The handshake of the ranks of a new communicator: they compare their versions, and find the memory that they can
// read.
module;
#include "includes.hpp"
module shardmesh.mpi;

import shardmesh.comm;
import :control;
import :engine;
import :record;
import :session;
import :staged;

namespace shardmesh::mpi {
namespace {

constexpr std::uint32_t protocol_version = 3;

// The data that ranks exchange when a communicator is made.
struct hello {
  std::uint32_t version = 0;
  std::uint32_t record_size = 0;
  machine_identity machine;
  std::int64_t process = 0;  // 0: peers must not read this rank's memory
  std::uint64_t guard_address = 0, guard = 0;
  std::int64_t chunk_bytes = 0;
};

std::uint64_t random_word() {
  std::random_device source;
  return static_cast<std::uint64_t>(source()) << 32 | source() | 1;
}

}  // namespace

result<std::shared_ptr<engine>> engine::make(std::shared_ptr<session> session, MPI_Comm parent,
                                             const mpi_options& options) {
  constexpr std::int64_t most = 1 << 30;
  if (options.chunk_bytes < 1 || options.chunk_bytes > most)
    return fail(errc::invalid_argument, "chunk_bytes of an mpi_communicator is out of range")
        .with_values(fmt::format("1 to {}", most), std::to_string(options.chunk_bytes));
  std::shared_ptr<engine> made(new engine(std::move(session)));
  SHARDMESH_TRY(made->open(parent, options));
  return made;
}

result<void> engine::open(MPI_Comm parent, const mpi_options& options) {
  for (MPI_Comm* comm : {&control_comm_, &data_comm_}) {
    SHARDMESH_TRY(called([&] { return MPI_Comm_dup(parent, comm); }, "cannot duplicate an MPI communicator"));
    SHARDMESH_TRY(
        called([&] { return MPI_Comm_set_errhandler(*comm, MPI_ERRORS_RETURN); }, "cannot set an MPI error handler"));
  }
  int rank = 0, size = 0;
  SHARDMESH_TRY(called([&] { return MPI_Comm_rank(control_comm_, &rank); }, "cannot query the rank"));
  SHARDMESH_TRY(called([&] { return MPI_Comm_size(control_comm_, &size); }, "cannot query the number of ranks"));
  rank_ = rank;
  size_ = size;
  guard_word_ = random_word();

  hello mine;
  mine.version = protocol_version;
  mine.record_size = sizeof(record_head);
  mine.machine = this_machine();
  if (options.read_peer_memory) mine.process = getpid();
  mine.guard_address = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(&guard_word_));  // NOLINT: for peers
  mine.guard = guard_word_;
  mine.chunk_bytes = options.chunk_bytes;
  std::vector<hello> all(static_cast<std::size_t>(size));
  SHARDMESH_TRY(called(
      [&] { return MPI_Allgather(&mine, sizeof(hello), MPI_BYTE, all.data(), sizeof(hello), MPI_BYTE, control_comm_); },
      "cannot complete the handshake with the other ranks"));
  peers_.resize(all.size());
  heard_.resize(all.size());
  std::int64_t chunk_bytes = options.chunk_bytes;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const hello& it = all[i];
    if (it.version != mine.version || it.record_size != mine.record_size)
      return fail(errc::disagreement, "ranks run different versions of shardmesh.mpi")
          .with_rank(static_cast<std::int32_t>(i))
          .with_values(std::to_string(mine.version), std::to_string(it.version));
    chunk_bytes = std::min(chunk_bytes, it.chunk_bytes);
    if (mine.process == 0 || it.process == 0 || static_cast<int>(i) == rank || !(it.machine == mine.machine)) continue;
    const peer_memory memory(it.process, it.guard_address, it.guard);
    if (memory.is_open()) peers_[i] = memory;  // otherwise the system refuses, or it is another process
  }
  // No rank may destroy its communicator while another one still probes its memory.
  SHARDMESH_TRY(
      called([&] { return MPI_Barrier(control_comm_); }, "cannot complete the handshake with the other ranks"));
  pool_.emplace(static_cast<std::size_t>(chunk_bytes));
  for (std::deque<transfer>* transfers : {&receiving_, &sending_, &pushing_}) transfers->resize(most_transfers);
  control_.emplace(control_comm_);
  return {};
}

}  // namespace shardmesh::mpi
