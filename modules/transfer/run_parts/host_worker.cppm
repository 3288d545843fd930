// SPDX-License-Identifier: Apache-2.0
// The work of a run in host memory: piece by piece, with the host's kernels. Runs with a backend have a `batch_worker`.
// Exports nothing.
module shardmesh.transfer:host_worker;

import shardmesh.std;
import shardmesh.core;
import :lent_pieces;
import :message_packing;
import :round_messages;
import :route;
import :route_cursor;
import :run_call;
import :scratch;
import :step;
import :step_memory;
import :transfer_names;

namespace shardmesh {

class host_worker {
 public:
  // All of these must outlive this object. A round receives at most `most_receives` messages.
  host_worker(step_memory& steps, const transfer_names& names, run_call& call, scratch& room, lent_pieces& lenders,
              round_messages& messages, std::size_t most_receives);

  // Starts the messages of a round, and does the work that needs none of them.
  result<void> start_round(const route_cursor& at);
  // Works through the pieces that have arrived, and local work ordered among them. Terms are combined in the table's
  // order.
  result<void> read_round(const route_cursor& at);
  // Does the work between the two rounds of a batch, or the work after the second.
  result<void> end_round(const route_cursor& at);

 private:
  result<void> work_through(std::span<const task> tasks, const route_cursor& at);
  result<void> carry_out(const task& work, const step& s, const const_tensor_view& from, const route_cursor& at);
  result<void> round_sums(const batch_route& batch);
  result<void> check_interruption(std::int64_t bytes);

  const step_memory& steps_;
  const transfer_names& names_;
  run_call& call_;
  round_messages& messages_;
  message_packing packing_;
};

}  // namespace shardmesh
