// SPDX-License-Identifier: Apache-2.0
// The cost of a transfer plan, counted before a byte moves. The plan itself is in `plan` and `rank_plan`.
export module shardmesh.transfer:plan_cost;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;

export namespace shardmesh {

/// Bytes that one owner sends, receives, and needs in a plan, over all transfers.
struct owner_cost {
  owner_id owner = 0;
  owner_space space = owner_space::ranks;
  std::int64_t sent_bytes = 0;
  std::int64_t received_bytes = 0;
  std::int64_t peak_bytes = 0;  // as `rank_plan::peak_bytes`: in addition to its tensors
  friend bool operator==(const owner_cost&, const owner_cost&) = default;
};

/// The traffic from one owner to another, over all transfers. `from` is in the source's owner space. `to` is in the
/// destination's, or in the source's for terms.
struct link_cost {
  owner_id from = 0, to = 0;
  std::int64_t size_bytes = 0;
  friend bool operator==(const link_cost&, const link_cost&) = default;
};

/// The cost of a plan. Bytes count as on the wire: in the smaller of the two dtypes.
struct plan_cost {
  std::int64_t bytes_total = 0;    // of all copies, including those within one owner
  std::int64_t bytes_moved = 0;    // between different owners
  std::int64_t lower_bound = 0;    // the fewest that any plan moves
  std::int64_t peak_bytes = 0;     // of the owner that needs the most
  std::vector<owner_cost> owners;  // every owner that holds or wants something, by space, then owner
  std::vector<link_cost> links;    // those with traffic, ascending by `from`, then `to`
  friend bool operator==(const plan_cost&, const plan_cost&) = default;
};

/// Formats a cost in a few lines: the totals, then a line per owner with its busiest links. Long lists are shortened
/// and end with the number of omitted entries.
std::string to_string(const plan_cost& cost);

}  // namespace shardmesh
