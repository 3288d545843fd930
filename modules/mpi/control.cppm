// SPDX-License-Identifier: Apache-2.0
// control_channel: non-blocking control records over an MPI communicator of its own.
module;
#include "includes.hpp"
module shardmesh.mpi:control;

import shardmesh.comm;
import :record;

namespace shardmesh::mpi {

class control_channel {
 public:
  using handler = function_ref<void(std::int32_t peer, const record_head&, std::span<const std::byte>)>;

  inline explicit control_channel(MPI_Comm comm) : comm_(comm), buffer_(new std::byte[record_capacity]) {}
  control_channel(const control_channel&) = delete;
  control_channel& operator=(const control_channel&) = delete;
  ~control_channel();

  /// Copies a record and starts to send it. Precondition: bytes.size() <= inline_bytes.
  result<void> send(std::int32_t peer, const record_head& head, std::span<const std::byte> bytes = {});
  /// Passes the records that have arrived to `handle`, in order per peer. Returns whether there was one.
  result<bool> poll(handler handle);
  /// Returns whether every record sent has left this rank.
  bool is_flushed();

 private:
  struct departing {
    std::unique_ptr<std::byte[]> bytes;
    MPI_Request request = MPI_REQUEST_NULL;
  };
  result<void> post();

  MPI_Comm comm_;
  std::unique_ptr<std::byte[]> buffer_;
  MPI_Request arriving_ = MPI_REQUEST_NULL;
  std::deque<departing> departing_;
};

}  // namespace shardmesh::mpi
