// SPDX-License-Identifier: Apache-2.0
// Control records: the protocol by which ranks move messages. A record is small enough that MPI sends it eagerly,
// without asking the receiver first (OpenMPI in shared memory: up to 4 KiB).
//
//   sender                                    receiver
//   ready {size, address} or {size} + bytes ->  matches the oldest receive of (peer, tag)
//                                               reads the sender's memory, or if it cannot:
//                <- grant {channel}  posts receives into staging memory
//   chunks, as MPI messages with the channel as tag ->
//   ready {size, channel} and chunks ->         the same without a grant, when the sender expects that its memory
//                                               cannot be read, and has a free channel of its own
//                                  <- taken     has the whole message
//   stop {doubt} + error   ->                   to all ranks, from any rank: poisons the communicator
module;
#include "includes.hpp"
module shardmesh.mpi:record;

import shardmesh.comm;

namespace shardmesh::mpi {

inline constexpr std::size_t record_capacity = 3968;

enum class record_kind : std::uint32_t { ready, ready_with_bytes, grant, taken, stop };

struct record_head {
  record_kind kind = record_kind::ready;
  std::uint32_t in_gather = 0;  // ready: 1 for a message of an all_gather; these have tags of their own
  std::uint64_t tag = 0;
  std::uint64_t sender_id = 0;  // the sender's number of the message
  std::uint64_t channel = 0;    // grant: the receiver's; ready: the sender's, or 0 when it waits for a grant
  std::uint64_t size = 0;       // ready: bytes of the message; stop: 1 when a rank may be dead
  std::uint64_t address = 0;    // ready: address of the message in the sender
  std::array<char, 24> call{};  // ready: name of the operation that the sender's call is part of; truncated
};

/// The largest message that travels inside its `ready` record, in bytes.
inline constexpr std::size_t inline_bytes = record_capacity - sizeof(record_head);

/// Serialises an error for `error_from_bytes`, shortened to fit a record.
std::vector<std::byte> short_error_bytes(error e);

}  // namespace shardmesh::mpi
