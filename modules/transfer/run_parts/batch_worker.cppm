// SPDX-License-Identifier: Apache-2.0
// The work of a run on a kernel backend, for device memory or with a custom host backend: launches of prepared batches
// on a stream. The tables are made in `batch_tables`; runs on the host's own kernels have a `host_worker`. Exports
// nothing.
module shardmesh.transfer:batch_worker;

import shardmesh.std;
import shardmesh.core;
import shardmesh.comm;
import shardmesh.kernels;
import :batch_tables;
import :bound_memory;
import :round_messages;
import :route;
import :route_cursor;
import :run_call;
import :step_memory;
import :transfer_names;

namespace shardmesh {

class batch_worker {
 public:
  // All of these must outlive this object, apart from the backend, which it owns with others.
  batch_worker(communicator_ref comm, const route& r, const bound_memory& bound, step_memory& steps,
               const transfer_names& names, run_call& call, std::shared_ptr<kernel_backend> backend);

  // Prepares a run: the tables, the stream, the scratch memory, and the addresses. `slab_bytes` is the scratch memory
  // that collectives need. Precondition: the memory is bound.
  result<void> begin(std::int64_t slab_bytes);

  // The work of a round, as in `host_worker`. Every call enqueues it on the run's stream.
  result<void> start_round(const route_cursor& at, round_messages& messages);
  result<void> read_round(const route_cursor& at);
  result<void> end_round(const route_cursor& at);

  // Marks the end of the run on its stream.
  result<void> mark_end();
  // Waits until all enqueued work is done. Returns false if it would have to block and may not. Precondition:
  // `mark_end` has succeeded.
  result<bool> drain(bool may_block);
  // Waits for the end of the latest run that marked one.
  result<void> wait_for_latest_run();
  // After a failure: returns when nothing touches memory any more.
  void finish_stream();

  // The scratch memory of the run.
  inline std::byte* room() const { return scratch_.data(); }
  inline std::int64_t scratch_bytes() const { return scratch_.size_bytes(); }

 private:
  result<void> choose_stream();
  result<void> reserve_scratch(std::int64_t size_bytes);
  void set_addresses();
  result<void> launch(const batched_stage& stage);

  communicator_ref comm_;
  const bound_memory& bound_;
  step_memory& steps_;
  run_call& call_;
  std::shared_ptr<kernel_backend> backend_;
  device memory_;
  batch_tables tables_;
  // The addresses of a launch, as `launch_slots` numbers them.
  std::vector<std::byte*> to_;
  std::vector<const std::byte*> from_;

  owned_stream own_;  // for runs without a stream; declared before members that are freed in its order
  device_buffer scratch_;
  std::unique_ptr<device_event> end_;  // of the latest run
  stream_ref last_{};                  // the stream of that run
};

}  // namespace shardmesh
