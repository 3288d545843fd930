// SPDX-License-Identifier: Apache-2.0
// A route's work as batches of a kernel backend, for runs on device memory or with a custom host backend. A round
// launches once before its messages and once after them. The code that makes the batches is in `run_batches`. Exports
// nothing.
module shardmesh.transfer:batched_work;

import shardmesh.std;
import shardmesh.core;
import shardmesh.kernels;

namespace shardmesh {

// Work that is launched together. The batch is null if there is none.
struct batched_stage {
  std::unique_ptr<prepared_batch> batch;
  std::int64_t copied_bytes = 0;  // for progress
};

// A round of messages: the packing and copying before it, the places of its messages, and the unpacking and summing
// after it.
struct batched_round {
  batched_stage before, after;
  static constexpr std::int64_t straight = -1;
  std::vector<std::int64_t> sent, received;  // per message: its place in the scratch memory, or `straight`
};

struct batched_route {
  batched_round gather, deliver;
  batched_stage middle, finish;
  std::int64_t scratch_bytes = 0;
};

struct batched_work {
  std::shared_ptr<kernel_backend> backend;
  device memory;
  std::vector<batched_route> routes;  // per batch of the route
  std::int64_t shapes = -1;           // `bound_memory::shapes()` for which the tables were made

  // The addresses of a launch. Targets are the destinations, then scratch. Sources are the sources, the destinations,
  // and scratch.
  std::vector<std::byte*> to;
  std::vector<const std::byte*> from;

  owned_stream own;  // for runs without a stream; declared before members that are freed in its order
  device_buffer scratch;
  stream_ref stream{};                // of the current run
  std::unique_ptr<device_event> end;  // of the latest run
  stream_ref last{};                  // the stream of that run
  std::int64_t scratch_bytes() const { return scratch.size_bytes(); }
};

}  // namespace shardmesh
