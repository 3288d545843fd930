// SPDX-License-Identifier: Apache-2.0
// A thread's unfinished runs. A thread that waits for one run advances the others on the same communicator, so ranks
// may wait for them in any order. A single run is in `run`. Exports nothing.
module shardmesh.transfer:concurrent_runs;

import shardmesh.std;
import shardmesh.core;
import shardmesh.comm;
import :executor;
import :run;

namespace shardmesh {

// A started run. Waits for other runs of its thread advance it, and another thread may wait for it, so it has a lock.
struct started_run {
  explicit started_run(std::shared_ptr<executor::state> s) : work(std::move(s)) {}

  // Advances the run by one step, for its own waiter. Returns false if the step would block. Rethrows an exception of a
  // callback, even one that was thrown while another run's wait advanced this run.
  bool advance(bool may_block);
  // Advances the run by one step, for another run's wait. Does nothing if the run is busy.
  void help();

  std::mutex lock;
  std::shared_ptr<executor::state> work;
  std::optional<result<void>> over;
  std::exception_ptr thrown;
  std::atomic<bool> is_over = false;
};

// Adds a run to those that this thread advances while it waits.
void remember(const std::shared_ptr<started_run>& run);

// Calls `advance(false)` until it reports the end, and advances this thread's other runs on the communicator in
// between. When no other run is left, calls `advance(true)`.
void advance_together(communicator_ref comm, const started_run* self, function_ref<bool(bool)> advance);

}  // namespace shardmesh
