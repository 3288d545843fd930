// SPDX-License-Identifier: Apache-2.0
// The bytes of a round's messages in host memory. A message that is contiguous in a slot or in staging is sent from
// there or received there. Other messages are packed, or their pieces are lent. The messages in flight are in
// `round_messages`. Exports nothing.
module shardmesh.transfer:message_packing;

import shardmesh.std;
import shardmesh.core;
import :lent_pieces;
import :round_messages;
import :route;
import :route_cursor;
import :run_call;
import :scratch;
import :step_memory;
import :transfer_names;

namespace shardmesh {

class message_packing {
 public:
  // All of these must outlive this object. A round receives at most `most_receives` messages.
  message_packing(step_memory& steps, const transfer_names& names, run_call& call, scratch& room, lent_pieces& lenders,
                  round_messages& messages, std::size_t most_receives);

  // Reserves the memory of a batch, which both of its rounds use: the staging, then the messages of one round.
  result<void> reserve(const batch_route& batch);
  // Starts the messages of a round, if it has any.
  result<void> start(const route_cursor& at);
  // The place at which received message number `message` arrives; null: straight in the target of its one piece.
  // Precondition: this is not a lending.
  inline std::byte* arrived(std::size_t message) const { return arrived_[message]; }

 private:
  std::int64_t packed_bytes(const message_round& round) const;
  result<void> lend(const route_cursor& at);
  result<void> send(const route_cursor& at);
  result<void> pack(const route_cursor& at, const message& m, std::byte* to);

  step_memory& steps_;
  const transfer_names& names_;
  run_call& call_;
  scratch& room_;
  lent_pieces& lenders_;
  round_messages& messages_;
  std::vector<std::byte*> arrived_;  // per received message of the round
};

}  // namespace shardmesh
