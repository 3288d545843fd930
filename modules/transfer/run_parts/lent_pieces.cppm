// SPDX-License-Identifier: Apache-2.0
// The pieces of a round's messages, lent to peers that share this rank's memory. The lending itself is in
// `round_messages`. Exports nothing.
module shardmesh.transfer:lent_pieces;

import shardmesh.std;
import shardmesh.core;
import shardmesh.comm;
import :route;
import :route_cursor;
import :step;
import :step_memory;

namespace shardmesh {

class lent_pieces {
 public:
  // `most` is the most messages of a round. The memory must outlive this object.
  lent_pieces(const step_memory& memory, std::size_t most);

  // Returns the pieces of a message that the round at `at` sends. The lender lives until the next `clear`.
  // Precondition: at most `most` calls since `clear`, so that lenders keep their addresses.
  const lender& of(const route_cursor& at, const message& m);
  inline void clear() { lenders_.clear(); }

 private:
  // Keeps the place on the route, because the peer's thread reads the pieces.
  struct message_lender final : lender {
    message_lender(const step_memory& steps, const route_cursor& place, std::size_t first_piece)
        : memory(&steps), at(place), first(first_piece) {}
    const_tensor_view piece(std::size_t index) const override {
      const task& work = at.round().outgoing[first + index];
      return memory->source_of(work, memory->step_of(work), at);
    }
    const step_memory* memory;
    route_cursor at;
    std::size_t first;  // index of the message's first piece in `outgoing`
  };

  const step_memory& memory_;
  std::vector<message_lender> lenders_;
};

}  // namespace shardmesh
