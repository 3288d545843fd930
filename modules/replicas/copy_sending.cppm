// SPDX-License-Identifier: Apache-2.0
// Not exported: sends the copies of a step to the ranks that lack them, and checks the received ones.
module shardmesh.replicas:copy_sending;

import shardmesh.std;
import shardmesh.core;
import :memory_step;
import :rank_round;

namespace shardmesh {

// The ranks of one chunk. The senders have its bytes; a chunk may have no receiver.
struct chunk_route {
  std::vector<std::int32_t> senders, receivers;
};

// The bytes of this rank's messages.
struct sent_copies {
  std::int64_t sent_bytes = 0, received_bytes = 0;
};

bool is_among(std::int32_t rank, std::span<const std::int32_t> ranks);

// Sends every chunk to its receivers, in one transfer. Collective. `routes`: of each chunk of the step, the same on
// every rank.
result<sent_copies> send_copies(memory_step& step, std::span<const chunk_route> routes, const rank_round& round,
                                const std::function<void(std::int64_t)>& progress);

// Compares the chunks that this rank received with their digests. errc::checksum_mismatch with key and box.
result<void> check_received(const memory_step& step, std::span<const chunk_route> routes, std::int32_t rank);

}  // namespace shardmesh
