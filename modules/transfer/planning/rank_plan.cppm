// SPDX-License-Identifier: Apache-2.0
// rank_plan: what one owner does: its steps, and what travels to and from whom. Not here: memory and bytes (executor).
export module shardmesh.transfer:rank_plan;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import :step;
import :step_table;
import :transfer_class;

namespace shardmesh {
struct plan_clock;
}

export namespace shardmesh {

/// What travels between this owner and a peer, over all transfers.
struct peer_traffic {
  owner_id peer = 0;
  std::int64_t pieces = 0;
  std::int64_t size_bytes = 0;
  friend bool operator==(const peer_traffic&, const peer_traffic&) = default;
};

/// An owner's part of one transfer: its steps, and which of them are sent and received. Both sides of a pair list the
/// pieces between them in the same order, which is their order on the wire.
struct owner_steps {
  owner_id owner = 0;
  bool is_giver = true;   // it is an owner of the source's space: a step from it is sent
  bool one_space = true;  // source and destination are held by the same owners
  step_table steps;
  std::int64_t sent_bytes = 0, received_bytes = 0, local_bytes = 0, staging_bytes = 0;
  std::int64_t held_bytes = 0, wanted_bytes = 0;  // of this owner's fragments on both sides

  /// Calls `visit(peer, step, sends)` for every piece that travels, in the order of steps: of a pair, that is the order
  /// on the wire. Cost: O(steps).
  template <std::invocable<owner_id, std::uint32_t, bool> Visit>
  constexpr void for_each_piece(Visit&& visit) const {
    steps.for_each([&](std::size_t i, const step_head& s, std::int64_t) {
      if (!travels(s)) return;
      const bool sends = is_sent(s);
      visit(sends ? s.to_owner : s.from_owner, static_cast<std::uint32_t>(i), sends);
    });
  }
  /// The steps that are sent, and those that are received: (peer, step), by peer, then in wire order.
  /// Cost: O(steps log steps).
  constexpr std::vector<std::pair<owner_id, std::uint32_t>> sends() const { return pieces(true); }
  constexpr std::vector<std::pair<owner_id, std::uint32_t>> receives() const { return pieces(false); }

  constexpr bool travels(const step_head& s) const {
    return transfer_class::travels(s.kind, s.from_side, s.to_side, s.from_owner != s.to_owner, one_space);
  }
  constexpr bool is_sent(const step_head& s) const { return is_giver && s.from_owner == owner; }

 private:
  constexpr std::vector<std::pair<owner_id, std::uint32_t>> pieces(bool sent) const {
    std::vector<std::pair<owner_id, std::uint32_t>> found;
    for_each_piece([&](owner_id peer, std::uint32_t i, bool sends) {
      if (sends == sent) found.emplace_back(peer, i);
    });
    std::sort(found.begin(), found.end());
    return found;
  }
};

/// What one owner does in a transfer plan. Immutable; equal transfers share their steps.
class rank_plan {
 public:
  owner_id owner() const { return owner_; }
  owner_space space() const { return space_; }
  /// Number of transfers, as in the plan.
  std::size_t transfers() const { return parts_.size(); }
  /// This owner's part of a transfer.
  const owner_steps& part(std::size_t transfer) const { return *parts_[transfer]; }
  const step_table& steps(std::size_t transfer) const { return parts_[transfer]->steps; }

  /// Per peer, ascending. Peers of `sends` are in the destination's owner space (terms: in the source's), those of
  /// `receives` in the source's.
  std::vector<peer_traffic> sends() const;
  std::vector<peer_traffic> receives() const;
  std::int64_t sent_bytes() const;
  std::int64_t received_bytes() const;
  /// Bytes of the fragments that this owner holds and wants.
  std::int64_t held_bytes() const;
  std::int64_t wanted_bytes() const;
  /// The memory that the exchange may take beside them (see `plan_options::memory_bytes`).
  std::int64_t budget_bytes() const;
  /// Most bytes of messages and staging that are alive at one time, when every piece is packed and the exchange is cut
  /// into as many rounds as this owner's budget asks for. All ranks go through as many rounds as the one that needs
  /// most, so a run takes this or less. More than the budget: it cannot be kept. Cost: O(steps).
  std::int64_t peak_bytes() const;

  /// For this room.
  const std::shared_ptr<const plan_clock>& clock() const { return clock_; }
  std::int64_t largest_bytes(bool messages) const;
  void leave_out(std::size_t transfer);  // its steps are done otherwise

 private:
  friend class transfer_plan;
  std::shared_ptr<const plan_clock> clock_;
  std::shared_ptr<const void> tables_;  // of all transfers: the plan finds them while this lives
  owner_id owner_ = 0;
  owner_space space_ = owner_space::ranks;
  std::vector<std::shared_ptr<const owner_steps>> parts_;
  std::vector<std::int64_t> wire_bits_;    // per transfer, of an element
  std::vector<std::int64_t> source_bits_;  // per transfer: terms travel in the source's type
  std::vector<peer_traffic> traffic(bool sends) const;
};

}  // namespace shardmesh
