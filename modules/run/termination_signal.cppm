// SPDX-License-Identifier: Apache-2.0
// termination_signal: notices SIGTERM, with which a scheduler announces the end of a job, so that a training loop saves
// a last step.
export module shardmesh.run:termination_signal;

import shardmesh.std;
import shardmesh.core;
import shardmesh.comm;

export namespace shardmesh {

/// While an object of this type lives, SIGTERM does not end the process, but is noted. Several objects of a process
/// share the note; the last of them restores the earlier handler. Thread-safe.
class termination_signal {
 public:
  termination_signal();
  ~termination_signal();
  termination_signal(const termination_signal&) = delete;
  termination_signal& operator=(const termination_signal&) = delete;

  /// Returns whether SIGTERM has arrived at this process since the first of the living objects was made.
  bool has_arrived() const noexcept;
  /// Returns whether SIGTERM has arrived at any rank, the same on every rank. A scheduler signals the ranks at
  /// different times, and all of them must save the same step. Collective; blocks.
  /// \errors those of the communicator
  /// Cost: one agreement of a few bytes.
  result<bool> has_arrived_on_any(communicator_ref comm, const call_options& call = {}) const;
  /// Returns the end of a time budget that began when SIGTERM arrived at this process; if it has not arrived, the
  /// budget begins now. For `within` of the last save.
  time_limit deadline(std::chrono::milliseconds budget) const noexcept;
};

}  // namespace shardmesh
