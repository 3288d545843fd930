// SPDX-License-Identifier: Apache-2.0
// Not exported: the two ends of a message between threads meet, and one of their ranks copies it. Every function needs
// the lock.
module shardmesh.comm:message_ends;

import shardmesh.std;
import :thread_state;

namespace shardmesh {

// Up to this size, the second rank to start a message copies it at once.
inline constexpr std::size_t small_bytes = std::size_t{64} << 10;

// Matches an end with the oldest counterpart that waits for it, or else queues it.
void meet(thread_state& group, message_end& end);

// Marks both ends of a matched message as being copied or read.
void set_busy(message_end& end);

// Marks both ends of a message as done, and wakes the owners that were waiting for that.
void complete(thread_state& group, message_end& end);

// Copies one message of at most `limit` bytes, with the lock released. Returns false when there is none to copy.
bool copy_one(thread_exchange& e, std::unique_lock<std::mutex>& locked,
              std::size_t limit = std::numeric_limits<std::size_t>::max());

}  // namespace shardmesh
