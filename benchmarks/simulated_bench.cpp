// SPDX-License-Identifier: Apache-2.0
// Plans a DCP save on simulated ranks, once, with the CPU time of each rank in the modelled time. benchmarks/ranks.py
// runs it.
//   shardmesh_simulated_bench RANKS TENSORS SHARDS
// Every tensor is cut by rows into SHARDS shards; ranks with equal rank % SHARDS are replicas and share their
// description, so that memory is that of the save. Prints one JSON object; "other_" is the most of a rank other than 0.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "rank_timing.hpp"
import shardmesh;
import shardmesh.simulation;

namespace {
using namespace shardmesh;
using namespace rank_timing;

constexpr std::int64_t rows = 2, columns = 8;

const_local_state state_of(std::int32_t shard, std::int32_t shards, std::int64_t tensors,
                           std::span<const float> memory) {
  const box mine{{rows * shard, 0}, {rows, columns}};
  const const_tensor_view view{
      reinterpret_cast<const std::byte*>(memory.data()), dtype::float32, {}, mine.sizes, {columns, 1}};
  const_local_state made;
  for (std::int64_t i = 0; i < tensors; ++i)
    made.tensors.push_back({{"layers", i, "weight"}, {rows * shards, columns}, dtype::float32, {{mine, view}}, {}});
  return made;
}

// Ends a save after its plan: after the messages between rank 0 and the others, the next agreement, which would report
// that no file is made, fails at once.
struct planning_communicator {
  communicator_ref inner;
  bool has_plan = false;

  std::int32_t rank() const { return inner.rank(); }
  std::int32_t size() const { return inner.size(); }
  static error ended() { return fail(errc::cancelled, "only the plan is measured"); }
  result<std::vector<std::vector<std::byte>>> all_gather(std::span<const std::byte> bytes, const call_options& call) {
    if (has_plan) return ended();
    return inner.all_gather(bytes, call);
  }
  result<pending> start_exchange(std::span<const outgoing> sends, std::span<const incoming> receives,
                                 const call_options& call) {
    const bool is_agreement = call.tag == detail::tree_tag;
    if (is_agreement && has_plan) return ended();
    has_plan = has_plan || !is_agreement;
    return inner.start_exchange(sends, receives, call);
  }
  void abort(const error& reason) { inner.abort(reason); }
};
static_assert(communicator<planning_communicator>);

// Plans the save of this rank's state. The save ends before it makes a file.
result<void> plan(any_communicator& whole, const const_local_state& state) {
  planning_communicator comm{whole};
  rank_save_options options;
  options.threads = 1;  // the clock of a rank is that of one thread
  options.before = [](save_phase now) -> result<void> {
    if (now == save_phase::describe) return {};
    return fail(errc::cancelled, "only the plan is measured");
  };
  const auto planned = save("planned-only", state, comm, options);
  if (planned) return fail(errc::invalid_argument, "the save went beyond its plan");
  if (planned.error().code != errc::cancelled) return planned.error();
  return {};
}

void print(const simulation_report& report, double seconds, std::int64_t memory_bytes) {
  const rank_traffic& root = report.ranks.front();
  std::int64_t messages = 0, bytes = 0, gathered = 0;
  for (const rank_traffic& one : std::span(report.ranks).subspan(1)) {
    messages = std::max(messages, one.sent_messages + one.received_messages);
    bytes = std::max(bytes, one.sent_bytes + one.received_bytes);
    gathered = std::max(gathered, one.gathered_bytes);
  }
  std::printf(
      "{\"seconds\":%.6f,\"memory_bytes\":%lld,\"critical_path_seconds\":%.9f,\"other_messages\":%lld,"
      "\"other_bytes\":%lld,\"other_gathered_bytes\":%lld,\"root_messages\":%lld,\"root_bytes\":%lld}\n",
      seconds, static_cast<long long>(memory_bytes), std::chrono::duration<double>(report.critical_path()).count(),
      static_cast<long long>(messages), static_cast<long long>(bytes), static_cast<long long>(gathered),
      static_cast<long long>(root.sent_messages + root.received_messages),
      static_cast<long long>(root.sent_bytes + root.received_bytes));
}

}  // namespace

int main(int count, char** words) {
  if (count != 4) return 2;
  const std::int32_t ranks = std::atoi(words[1]), shards = std::atoi(words[3]);
  const std::int64_t tensors = std::atoll(words[2]);
  if (ranks < 1 || shards < 1 || shards > ranks || tensors < 1) return 2;
  const std::vector<float> memory(static_cast<std::size_t>(rows * columns), 1.0F);
  forget_peak();
  const std::int64_t before = resident("VmRSS:");
  std::vector<const_local_state> states;
  for (std::int32_t shard = 0; shard < shards; ++shard) states.push_back(state_of(shard, shards, tensors, memory));
  const auto began = clock_type::now();
  const auto report = simulate_ranks(
      ranks, [&](any_communicator& comm) { return plan(comm, states[static_cast<std::size_t>(comm.rank() % shards)]); },
      {.count_cpu_time = true});
  if (!report) return std::fprintf(stderr, "%s\n", to_string(report.error()).c_str()), 1;
  print(*report, std::chrono::duration<double>(clock_type::now() - began).count(), resident("VmHWM:") - before);
  return 0;
}
