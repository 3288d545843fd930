// SPDX-License-Identifier: Apache-2.0
// Not exported: which ranks of a transfer do one collective together.
module shardmesh.transfer:collective_groups;

import shardmesh.std;
import shardmesh.layout;
import :collective;
import :plan;

namespace shardmesh {

// All ranks in groups of `ranks` each, every one of which does the same collective with boxes of its own. In a group
// that gathers or scatters, the rank after another has the block after the other's.
struct ranks_in_groups {
  collective_kind kind = collective_kind::all_reduce;
  std::int32_t ranks = 0;
  std::vector<std::int32_t> group_of;  // per rank, from 0 by their lowest ranks; all 0 when it is all ranks
  std::vector<std::int32_t> root_of;   // of a broadcast: per group, its root's place in it
};

// Nothing when the transfer is no collective of such groups.
std::optional<ranks_in_groups> groups_of(const tensor_transfer& t, std::int32_t ranks);

// The one fragment of a rank, if it has just one that is not empty.
std::optional<fragment> only_fragment(const distribution& d, owner_id rank);

}  // namespace shardmesh
