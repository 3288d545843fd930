// SPDX-License-Identifier: Apache-2.0
// A route's work as batches of a kernel backend: tables that name slots and offsets, not addresses. A round of messages
// launches once before them and once after them. The launches are in `batch_worker`. Exports nothing.
module shardmesh.transfer:batch_tables;

import shardmesh.std;
import shardmesh.core;
import shardmesh.kernels;
import :bound_memory;
import :route;
import :route_cursor;
import :step_memory;
import :transfer_names;

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

// The work of one batch of the route.
struct batched_route {
  batched_round gather, deliver;
  batched_stage middle, finish;
  std::int64_t scratch_bytes = 0;
};

// The tables of a whole route. `launch_slots` numbers their slots.
class batch_tables {
 public:
  // All of these must outlive this object.
  batch_tables(const route& r, const bound_memory& bound, const step_memory& steps, const transfer_names& names);

  // Prepares the tables of the whole route for memory on `where`. Does nothing if the shapes of the bound memory are
  // those of the last call.
  result<void> prepare(kernel_backend& backend, device where);

  // Precondition of the rest: `prepare` has succeeded.
  inline const batched_route& batch(const route_cursor& at) const { return routes_[at.index()]; }
  inline const batched_round& round(const route_cursor& at) const {
    return at.is_delivering() ? batch(at).deliver : batch(at).gather;
  }
  // The scratch memory that a batch needs at most.
  std::int64_t scratch_bytes() const;

 private:
  const route& route_;
  const bound_memory& bound_;
  const step_memory& steps_;
  const transfer_names& names_;
  std::vector<batched_route> routes_;  // per batch of the route
  std::int64_t shapes_ = -1;           // `bound_memory::shapes()` for which the tables were made
};

}  // namespace shardmesh
