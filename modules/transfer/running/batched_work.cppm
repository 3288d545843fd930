// SPDX-License-Identifier: Apache-2.0
// Not exported: the work of a route as batches of a backend, where the memory of a run is not the host's or the host's
// is another backend's: one launch before a round's messages, one after them. Not here: making them (run_batches).
module shardmesh.transfer:batched_work;

import shardmesh.std;
import shardmesh.core;
import shardmesh.kernels;

namespace shardmesh {

// Work that is launched together; none when the batch is null.
struct batched_stage {
  std::unique_ptr<prepared_batch> batch;
  std::int64_t copied_bytes = 0;  // for progress
};

// A round of messages: what is packed and copied before, where messages are, what is unpacked and summed after.
struct batched_round {
  batched_stage before, after;
  static constexpr std::int64_t straight = -1;
  std::vector<std::int64_t> sent, received;  // per message: its place in the scratch memory, or straight
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
  std::int64_t shapes = -1;           // of which bindings the tables are (bound_memory::shapes)

  // The addresses of a launch: destinations, then scratch; sources, destinations, scratch.
  std::vector<std::byte*> to;
  std::vector<const std::byte*> from;

  owned_stream own;  // of runs without one; declared before what is freed in its order
  device_buffer scratch;
  stream_ref stream{};                // of the run at hand
  std::unique_ptr<device_event> end;  // of the latest run
  stream_ref last{};                  // its stream
  std::int64_t scratch_bytes() const { return scratch.size_bytes(); }
};

}  // namespace shardmesh
