// SPDX-License-Identifier: Apache-2.0
// Not exported: the code that both ways to flatten nested sharded tensors share.
module shardmesh.state:flattening;

import shardmesh.std;
import shardmesh.sharding;
import :nest;

namespace shardmesh::detail {

// Moves a shard of a tensor of these sizes into the coordinates of the whole tensor, in which the tensor starts at
// `origin`.
// \errors errc::shape_mismatch, errc::out_of_bounds; each naming the shard
result<shard_metadata> moved(const shard_metadata_view& shard, const extents& sizes, const extents& origin);

// \errors errc::invalid_argument for members of different ranks; errc::dtype_mismatch
result<void> check_same_process(const nest& members);

// Chooses the group of the flat tensor: the wanted one, or the members' common group if it has the ranks of all shards.
// Otherwise makes a group of all ranks of the members and shards.
// \errors errc::invalid_argument for a rank that is not in the group
result<void> find_group(flat_nest& flat, const nest& members, const std::optional<rank_group>& wanted);

}  // namespace shardmesh::detail
