// SPDX-License-Identifier: Apache-2.0
// Groups of ranks that do one collective of a transfer together. Exports nothing.
module shardmesh.transfer:collective_groups;

import shardmesh.std;
import shardmesh.layout;
import :collective;
import :plan;

namespace shardmesh {

// All ranks in groups of `ranks` each. Every group does the same collective, with its own boxes. If the groups gather
// or scatter, a group's blocks ascend with its ranks.
struct ranks_in_groups {
  collective_kind kind = collective_kind::all_reduce;
  std::int32_t ranks = 0;
  std::vector<std::int32_t> group_of;  // per rank, from 0, in the order of the groups' lowest ranks
  std::vector<std::int32_t> root_of;   // of a broadcast: per group, the root's place in it
};

// Returns nothing if the transfer is not a collective of such groups.
std::optional<ranks_in_groups> groups_of(const tensor_transfer& t, std::int32_t ranks);

// The one fragment of a rank, if exactly one is not empty.
std::optional<fragment> only_fragment(const distribution& d, owner_id rank);

}  // namespace shardmesh
