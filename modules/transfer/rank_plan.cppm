// SPDX-License-Identifier: Apache-2.0
// rank_plan: what one owner does: its steps, and what travels to and from whom. Not here: memory and bytes (executor).
module;
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>
export module shardmesh.transfer:rank_plan;

import shardmesh.core;
import shardmesh.layout;
import :step;

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
  step_table steps;
  std::vector<std::pair<owner_id, std::uint32_t>> sends, receives;  // (peer, step), by peer, then in wire order
  std::int64_t sent_bytes = 0, received_bytes = 0, local_bytes = 0, staging_bytes = 0;
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
  /// Most bytes of messages and staging that are alive at one time: the memory needed beside source and destination
  /// buffers when every piece is packed. With a memory budget, the largest batch's.
  std::int64_t peak_bytes() const;

 private:
  friend class transfer_plan;
  owner_id owner_ = 0;
  owner_space space_ = owner_space::ranks;
  std::vector<std::shared_ptr<const owner_steps>> parts_;
  std::vector<std::pair<std::size_t, std::size_t>> batches_;
  std::vector<std::int64_t> wire_bits_;    // per transfer, of an element
  std::vector<std::int64_t> source_bits_;  // per transfer: terms travel in the source's type
  std::vector<peer_traffic> traffic(bool sends) const;
};

}  // namespace shardmesh
