// SPDX-License-Identifier: Apache-2.0
// staged_transfer: one message in chunks through staging memory, for peers whose memory cannot be read. MPI sees only
// the staging memory, which outlives the message when MPI does not let go of it.
module;
#include "includes.hpp"
module shardmesh.mpi:staged;

import shardmesh.comm;

namespace shardmesh::mpi {

/// Messages under way at a time, in each direction and way. Channels of granted ones are numbers below it, chosen by
/// the receiver; those of messages that are pushed follow, chosen by the sender.
inline constexpr std::size_t most_transfers = 16;

/// Chunks of a message under way at a time.
inline constexpr std::size_t most_slots = 4;

/// Memory that MPI may hold, with the request that holds it.
struct staging {
  std::unique_ptr<std::byte[]> bytes;
  MPI_Request request = MPI_REQUEST_NULL;
  bool is_free();  // asks MPI
};

/// Memory whose requests nobody waits for any more. What MPI still holds at the end is given up, not freed.
class abandoned_memory {
 public:
  abandoned_memory();
  abandoned_memory(const abandoned_memory&) = delete;
  abandoned_memory& operator=(const abandoned_memory&) = delete;
  ~abandoned_memory();
  /// Precondition: all together no more than all transfers of a communicator have.
  void add(staging memory) noexcept;
  inline bool is_empty() const { return held_.empty(); }

 private:
  static constexpr std::size_t most_abandoned = 3 * most_transfers * most_slots;
  std::vector<staging> held_;  // with room for all: it grows where there may be no memory
};

/// Staging memory in pieces of one chunk, kept for the next message: fresh pages cost more than the copying.
class staging_pool {
 public:
  inline explicit staging_pool(std::size_t chunk) : chunk_(chunk) {}
  inline std::size_t chunk() const { return chunk_; }
  std::unique_ptr<std::byte[]> take();
  /// Precondition: MPI does not hold it.
  void give_back(std::unique_ptr<std::byte[]> bytes);

 private:
  static constexpr std::size_t most_bytes = 32 << 20;
  std::size_t chunk_;
  std::vector<std::unique_ptr<std::byte[]>> free_;
};

class staged_transfer {
 public:
  /// Reads `from` (a send) or writes `to` (a receive); the other is null. `channel` is the MPI tag.
  /// The pool outlives it.
  staged_transfer(MPI_Comm comm, std::int32_t peer, int channel, const std::byte* from, std::byte* to, std::size_t size,
                  staging_pool& pool);
  staged_transfer(const staged_transfer&) = delete;
  staged_transfer& operator=(const staged_transfer&) = delete;
  /// Precondition: finished or abandoned.
  ~staged_transfer();
  /// Moves what can be moved now; true when something did.
  result<bool> step();
  inline bool is_finished() const { return done_ == size_; }
  /// Never touches user memory again.
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
  std::vector<staging> slots_;         // a ring; a chunk's slot is its number modulo their count
};

}  // namespace shardmesh::mpi
