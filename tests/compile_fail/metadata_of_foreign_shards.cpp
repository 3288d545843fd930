// SPDX-License-Identifier: Apache-2.0
// Another framework's shards need an adapter.
// says: metadata is built from a list of shards: shardmesh::shard<T>, or a type of yours with a shard_adapter
#include <vector>
import shardmesh.sharding;

struct foreign {};
int main() {
  return shardmesh::build_metadata_from_local_shards(std::vector<foreign>(), {4}, 0, shardmesh::rank_group::world(1))
      .has_value();
}
