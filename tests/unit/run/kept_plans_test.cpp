// SPDX-License-Identifier: Apache-2.0
// A run keeps the plan of its latest save: a step with the same tensors is not planned again.
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <scratch_folder.hpp>
#include <span>
#include <vector>

#include "run_states.hpp"

using namespace shardmesh;
using namespace run_states;

namespace {

constexpr std::uint32_t plan_tag = (1U << 12) - 1;  // of messages between rank 0 and another rank

struct counting_communicator {
  communicator_ref inner;
  std::int64_t messages = 0;  // between rank 0 and another rank

  std::int32_t rank() const { return inner.rank(); }
  std::int32_t size() const { return inner.size(); }
  result<std::vector<std::vector<std::byte>>> all_gather(std::span<const std::byte> bytes, const call_options& call) {
    return inner.all_gather(bytes, call);
  }
  result<pending> start_exchange(std::span<const outgoing> sends, std::span<const incoming> receives,
                                 const call_options& call) {
    if (call.tag == plan_tag) messages += std::ssize(sends) + std::ssize(receives);
    return inner.start_exchange(sends, receives, call);
  }
  void abort(const error& reason) { inner.abort(reason); }
};
static_assert(communicator<counting_communicator>);

}  // namespace

TEST_CASE("a run does not plan a step again that has the tensors and options of the step before") {
  const scratch_folder scratch;
  on_ranks(2, [&](any_communicator& comm) -> result<void> {
    counting_communicator counted{comm};
    auto run = checkpoint_run::open(scratch / "run", counted);
    if (!run) return std::move(run).error();
    std::vector<std::int64_t> messages;
    for (const std::int64_t step : {1, 2, 3}) {
      counted.messages = 0;
      trainer state = trained(comm, step);
      run_save_options how = quick();
      how.saving.lowest_rank_objects = step == 3;
      if (const auto saved = run->save(step, state, counted, how); !saved) return saved.error();
      messages.push_back(counted.messages);
    }
    // A description, a share, and checksums, each after its size; the second step has only checksums.
    if (auto same = expect(messages == std::vector<std::int64_t>{6, 2, 6}, "other messages"); !same) return same;
    trainer state(comm.rank(), comm.size());
    const auto resumed = run->resume(state, counted);
    if (!resumed) return resumed.error();
    return expect(resumed->step == 3 && state == trained(comm, 3), "another state");
  });
}
