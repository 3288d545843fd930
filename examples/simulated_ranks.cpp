// SPDX-License-Identifier: Apache-2.0
// Tests a collective of your own on 1,024 simulated ranks: a broadcast along a tree. The simulation counts the messages
// of each rank, and a model of the network gives the time that they take.
#include <shardmesh/try.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

import shardmesh.simulation;

using namespace shardmesh;
using namespace std::chrono_literals;

namespace {

// In each step, every rank that has the bytes sends them to one rank that does not.
result<void> broadcast_along_tree(communicator_ref comm, std::span<std::byte> bytes) {
  const std::int32_t rank = comm.rank();
  for (std::int32_t informed = 1; informed < comm.size(); informed *= 2) {
    std::vector<outgoing> sends;
    std::vector<incoming> receives;
    if (rank < informed && rank + informed < comm.size()) sends.push_back({rank + informed, bytes});
    if (rank >= informed && rank < 2 * informed) receives.push_back({rank - informed, bytes});
    if (sends.empty() && receives.empty()) continue;
    SHARDMESH_TRY(pending step, comm.start_exchange(sends, receives, {}));
    SHARDMESH_TRY(step.wait());
  }
  return {};
}

}  // namespace

int main() {
  const auto simulated = simulate_ranks(
      1024,
      [](any_communicator& comm) -> result<void> {
        std::vector<std::byte> bytes(4096, comm.rank() == 0 ? std::byte{7} : std::byte{0});
        SHARDMESH_TRY(broadcast_along_tree(comm, bytes));
        if (bytes == std::vector<std::byte>(4096, std::byte{7})) return {};
        return fail(errc::checksum_mismatch, "the bytes of rank 0 did not arrive").with_rank(comm.rank());
      },
      {.network = {.latency = 5us, .overhead = 1us, .bytes_per_second = 10'000'000'000}});
  if (!simulated) return std::fprintf(stderr, "%s\n", to_string(simulated.error()).c_str()), 1;
  const rank_traffic& root = simulated->ranks.front();
  const double microseconds = std::chrono::duration<double, std::micro>(simulated->critical_path()).count();
  std::printf("rank 0 sent %d messages; the broadcast takes %.1f us\n", int(root.sent_messages), microseconds);
  // Ten steps of at most a message each: latency, two overheads, and 4,096 bytes.
  return root.sent_messages == 10 && simulated->critical_path() == 10 * (5us + 2us + 410ns) ? 0 : 1;
}
