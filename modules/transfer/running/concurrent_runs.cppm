// SPDX-License-Identifier: Apache-2.0
// Not exported: runs that a thread has under way at the same time. A thread that waits for one advances the others of
// the same communicator, so ranks may wait for them in any order. Not here: a run itself (run).
module shardmesh.transfer:concurrent_runs;

import shardmesh.std;
import shardmesh.core;
import shardmesh.comm;
import :executor;
import :run;

namespace shardmesh {

// A run that was started. Its thread's other waits advance it too, and it may be waited for on another thread: so there
// is a lock.
struct started_run {
  explicit started_run(std::shared_ptr<executor::state> s) : work(std::move(s)) {}

  // One step of whoever holds it. False: it would block. Rethrows what a callback threw, also in somebody else's wait.
  bool advance(bool may_block);
  // A step on behalf of another run's wait: nothing when somebody is at it.
  void help();

  std::mutex lock;
  std::shared_ptr<executor::state> work;
  std::optional<result<void>> over;
  std::exception_ptr thrown;
  std::atomic<bool> is_over = false;
};

// This thread will help the run while it waits for others.
void remember(const std::shared_ptr<started_run>& run);

// Calls `advance(false)` until it says that it is over, and helps this thread's other runs on the communicator
// meanwhile; as soon as there are none, `advance(true)`.
void advance_together(communicator_ref comm, const started_run* self, function_ref<bool(bool)> advance);

}  // namespace shardmesh
