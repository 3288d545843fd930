// SPDX-License-Identifier: Apache-2.0
// The state of an executor, and of its run: what happens in which order. The work of a run is in `collective_driver`,
// `host_worker`, and `batch_worker`; its messages are in `round_messages`. Several runs of a thread are in
// `concurrent_runs`. Exports nothing.
module shardmesh.transfer:run;

import shardmesh.std;
import shardmesh.core;
import shardmesh.comm;
import shardmesh.kernels;
import :batch_worker;
import :binding;
import :bound_memory;
import :collective;
import :collective_driver;
import :executor;
import :host_worker;
import :lent_pieces;
import :plan;
import :rank_plan;
import :round_messages;
import :route;
import :route_cursor;
import :run_call;
import :scratch;
import :step_memory;
import :transfer_names;

namespace shardmesh {

// Where a run resumes: within the round at the cursor or, after the last round, in the draining of a backend.
enum class run_stage : std::uint8_t { start_round, await_messages, await_release, drain };

// How the runs of an executor move data, as the ranks have agreed.
struct run_setup {
  bool lends = false;
  std::int64_t rounds = 1;
  held_number number;
  std::vector<collective_use> collectives;
  std::vector<communicator_ref> groups;     // of `collectives`
  std::shared_ptr<kernel_backend> backend;  // null for the host's own kernels
};

struct executor::state {
  state(transfer_plan p, const rank_plan& mine, communicator_ref c, std::vector<std::string> names,
        const run_options& options, run_setup setup);
  state(const state&) = delete;
  state& operator=(const state&) = delete;
  ~state();

  // Checks the bindings and prepares the run.
  result<void> begin(std::span<const const_tensor_binding> from, std::span<const tensor_binding> to,
                     const call_options& options);
  // Advances the run. Returns nothing if it would have to block and may not. After an error or a callback's exception,
  // the communicator is aborted and nothing is in flight.
  std::optional<result<void>> advance_safely(bool may_block);

  transfer_plan plan;
  std::int64_t rounds = 1;
  std::int64_t moved_bytes = 0;  // by all ranks
  std::int64_t peak_bytes() const;
  std::int64_t scratch_bytes() const { return batches_ ? batches_->scratch_bytes() : scratch_.capacity(); }
  const rank_plan& steps() const { return route_.steps; }
  communicator_ref communicator() const { return comm_; }

 private:
  result<void> prepare(std::span<const const_tensor_binding> from, std::span<const tensor_binding> to);
  result<bool> advance(bool may_block);
  result<bool> end(bool may_block);
  void give_up(const error& reason);
  result<void> wait_for_latest_run();
  // The work of the round at the cursor, with the worker that this executor has.
  result<void> start_round() { return batches_ ? batches_->start_round(at_, messages_) : host_.start_round(at_); }
  result<void> read_round() { return batches_ ? batches_->read_round(at_) : host_.read_round(at_); }
  result<void> end_round() { return batches_ ? batches_->end_round(at_) : host_.end_round(at_); }

  communicator_ref comm_;
  check_policy check_;
  held_number number_;
  transfer_names names_;
  route route_;
  bound_memory memory_;
  run_call call_;
  step_memory steps_;

  // Declared before the members with messages in flight, so that it outlives them.
  scratch scratch_;
  lent_pieces lenders_;
  std::optional<batch_worker> batches_;  // none: `host_` does the work
  round_messages messages_;
  collective_driver collectives_;
  host_worker host_;

  // The current run.
  bool running_ = false;
  run_stage stage_ = run_stage::start_round;
  route_cursor at_;
  std::vector<std::function<void()>> written_;  // to call when the destinations are complete
};

}  // namespace shardmesh
