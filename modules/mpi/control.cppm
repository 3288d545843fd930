// SPDX-License-Identifier: Apache-2.0
// control_channel: control records over an MPI communicator of its own, sent and received without blocking.
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

  /// Copies the record and sends it. Precondition: bytes.size() <= inline_bytes.
  result<void> send(std::int32_t peer, const record_head& head, std::span<const std::byte> bytes = {});
  /// Gives the records that have come to `handle`, in the order of each peer; true when there was one.
  result<bool> poll(handler handle);
  /// Every record that was sent has left this rank.
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
