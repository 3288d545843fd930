// SPDX-License-Identifier: Apache-2.0
// One owner's part of a plan: its steps, and its traffic with each peer. Memory and bytes are in `executor`.
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

/// The traffic between this owner and one peer, over all transfers.
struct peer_traffic {
  owner_id peer = 0;
  std::int64_t pieces = 0;
  std::int64_t size_bytes = 0;
  friend bool operator==(const peer_traffic&, const peer_traffic&) = default;
};

/// An owner's part of one transfer: its steps, and the pieces that it sends and receives. Both sides of a pair list the
/// pieces between them in the same order, which is their order on the wire.
struct owner_steps {
  owner_id owner = 0;
  bool is_giver = true;   // an owner in the source's space: its outgoing steps are sends
  bool one_space = true;  // source and destination have the same owner space
  step_table steps;
  std::int64_t sent_bytes = 0, received_bytes = 0, local_bytes = 0, staging_bytes = 0;
  std::int64_t held_bytes = 0, wanted_bytes = 0;  // of this owner's fragments on both sides

  /// Calls `visit(peer, step, sends)` for every piece that travels, in step order. For each peer, that is the order on
  /// the wire.
  /// Cost: O(steps).
  template <std::invocable<owner_id, std::uint32_t, bool> Visit>
  constexpr void for_each_piece(Visit&& visit) const {
    steps.for_each([&](std::size_t i, const step_head& s, std::int64_t) {
      if (!travels(s)) return;
      const bool sends = is_sent(s);
      visit(sends ? s.to_owner : s.from_owner, static_cast<std::uint32_t>(i), sends);
    });
  }
  /// Returns the steps that this owner sends or receives as pairs (peer, step), by peer, then in wire order.
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

/// One owner's part of a transfer plan. Immutable; equal transfers share their steps.
class rank_plan {
 public:
  owner_id owner() const { return owner_; }
  owner_space space() const { return space_; }
  /// Number of transfers in the plan.
  std::size_t transfers() const { return parts_.size(); }
  /// This owner's part of a transfer.
  const owner_steps& part(std::size_t transfer) const { return *parts_[transfer]; }
  const step_table& steps(std::size_t transfer) const { return parts_[transfer]->steps; }

  /// Traffic per peer, ascending. Peers of `sends` are in the destination's owner space, or in the source's for terms.
  /// Peers of `receives` are in the source's.
  std::vector<peer_traffic> sends() const;
  std::vector<peer_traffic> receives() const;
  std::int64_t sent_bytes() const;
  std::int64_t received_bytes() const;
  /// Bytes of the fragments that this owner holds and wants.
  std::int64_t held_bytes() const;
  std::int64_t wanted_bytes() const;
  /// The memory that the exchange may take in addition to those fragments (see `plan_options::memory_bytes`).
  std::int64_t budget_bytes() const;
  /// The most bytes of messages and staging alive at one time. It assumes that every piece is packed, and that the
  /// exchange has as many rounds as this owner's budget needs. A run takes this or less, because all ranks use the
  /// largest number of rounds that any rank needs. A value above the budget means that the budget cannot be kept.
  /// Cost: O(steps).
  std::int64_t peak_bytes() const;

  /// Internal to this module.
  const std::shared_ptr<const plan_clock>& clock() const { return clock_; }
  std::int64_t largest_bytes(bool messages) const;
  void leave_out(std::size_t transfer);  // drops its steps: a collective moves the transfer

 private:
  friend class transfer_plan;
  std::shared_ptr<const plan_clock> clock_;
  std::shared_ptr<const void> tables_;  // of all transfers; while it lives, the plan reuses them
  owner_id owner_ = 0;
  owner_space space_ = owner_space::ranks;
  std::vector<std::shared_ptr<const owner_steps>> parts_;
  std::vector<std::int64_t> wire_bits_;    // bits of an element on the wire, per transfer
  std::vector<std::int64_t> source_bits_;  // the same for terms, which travel in the source's type
  std::vector<peer_traffic> traffic(bool sends) const;
};

}  // namespace shardmesh
