// SPDX-License-Identifier: Apache-2.0
// plan_cost: what a transfer plan costs, counted before a byte moves. Not here: who sends what (plan, rank_plan).
export module shardmesh.transfer:plan_cost;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;

export namespace shardmesh {

/// What one owner sends, receives and needs in a plan, over all transfers. Bytes.
struct owner_cost {
  owner_id owner = 0;
  owner_space space = owner_space::ranks;
  std::int64_t sent_bytes = 0;
  std::int64_t received_bytes = 0;
  std::int64_t peak_bytes = 0;  // as `rank_plan::peak_bytes`: beside its tensors
  friend bool operator==(const owner_cost&, const owner_cost&) = default;
};

/// What travels from one owner to another, over all transfers. `to` is in the destination's owner space (terms: in the
/// source's), `from` in the source's.
struct link_cost {
  owner_id from = 0, to = 0;
  std::int64_t size_bytes = 0;
  friend bool operator==(const link_cost&, const link_cost&) = default;
};

/// What a plan costs. Bytes as they travel: in the smaller of the two dtypes.
struct plan_cost {
  std::int64_t bytes_total = 0;    // of all copies, those within one owner too
  std::int64_t bytes_moved = 0;    // between different owners
  std::int64_t lower_bound = 0;    // the least that any plan moves
  std::int64_t peak_bytes = 0;     // of the owner that needs most
  std::vector<owner_cost> owners;  // all that hold or want something, ascending by space, then owner
  std::vector<link_cost> links;    // those over which something travels, ascending by `from`, then `to`
  friend bool operator==(const plan_cost&, const plan_cost&) = default;
};

/// Some lines: the sums, then a line per owner with its busiest links. Long lists are cut, and say how much is left
/// out.
std::string to_string(const plan_cost& cost);

}  // namespace shardmesh
