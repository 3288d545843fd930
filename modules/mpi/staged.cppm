// SPDX-License-Identifier: Apache-2.0
// staged_transfer: one message in chunks through staging memory, for peers whose memory cannot be read. MPI sees only
// the staging memory, which outlives the message if MPI has not released it.
module;
#include "includes.hpp"
module shardmesh.mpi:staged;

import shardmesh.comm;

namespace shardmesh::mpi {

/// The maximum number of messages in progress, separately for receiving, sending on a grant, and pushing. The receiver
/// chooses the channel of a granted message, below this number; the sender that of a pushed one, from this number on.
inline constexpr std::size_t most_transfers = 16;

/// The maximum number of chunks of a message in progress.
inline constexpr std::size_t most_slots = 4;

/// Staging memory of one chunk, and the MPI request that may hold it.
struct staging {
  std::unique_ptr<std::byte[]> bytes;
  MPI_Request request = MPI_REQUEST_NULL;
  bool is_free();  // whether MPI has released it; calls MPI_Test
};

/// Staging memory of abandoned requests. Memory that MPI still holds at the end is leaked, not freed.
class abandoned_memory {
 public:
  abandoned_memory();
  abandoned_memory(const abandoned_memory&) = delete;
  abandoned_memory& operator=(const abandoned_memory&) = delete;
  ~abandoned_memory();
  /// Takes over staging memory. Precondition: the total is at most that of all transfers of a communicator.
  void add(staging memory) noexcept;
  inline bool is_empty() const { return held_.empty(); }

 private:
  static constexpr std::size_t most_abandoned = 3 * most_transfers * most_slots;
  std::vector<staging> held_;  // reserved for all, because `add` is called when there may be no memory
};

/// Free staging memory in pieces of one chunk, kept for the next message: fresh pages cost more than the copy itself.
class staging_pool {
 public:
  inline explicit staging_pool(std::size_t chunk) : chunk_(chunk) {}
  inline std::size_t chunk() const { return chunk_; }
  std::unique_ptr<std::byte[]> take();
  /// Returns a piece to the pool. Precondition: MPI does not hold it.
  void give_back(std::unique_ptr<std::byte[]> bytes);

 private:
  static constexpr std::size_t most_bytes = 32 << 20;
  std::size_t chunk_;
  std::vector<std::unique_ptr<std::byte[]>> free_;
};

class staged_transfer {
 public:
  /// Makes a transfer that reads `from` (a send) or writes `to` (a receive); the other is null. `channel` is the MPI
  /// tag. The pool must outlive the transfer.
  staged_transfer(MPI_Comm comm, std::int32_t peer, int channel, const std::byte* from, std::byte* to, std::size_t size,
                  staging_pool& pool);
  staged_transfer(const staged_transfer&) = delete;
  staged_transfer& operator=(const staged_transfer&) = delete;
  /// Precondition: the transfer is finished or abandoned.
  ~staged_transfer();
  /// Moves the chunks that can move now. Returns whether any did.
  result<bool> step();
  inline bool is_finished() const { return done_ == size_; }
  /// Ends the transfer: it never touches user memory again. Moves its staging memory to `to`.
  void abandon(abandoned_memory& to) noexcept;

 private:
  result<void> post(std::size_t slot);

  MPI_Comm comm_;
  std::int32_t peer_;
  int channel_;
  const std::byte* from_;
  std::byte* to_;
  std::size_t size_;
  staging_pool& pool_;
  std::size_t chunk_;
  std::size_t posted_ = 0, done_ = 0;  // bytes
  std::vector<staging> slots_;         // a ring: chunk i uses slot i modulo their count
};

}  // namespace shardmesh::mpi
