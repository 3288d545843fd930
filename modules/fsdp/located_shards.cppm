// SPDX-License-Identifier: Apache-2.0
// Not exported: where the sharded values of a load lie, as all ranks describe them together.
module shardmesh.fsdp:located_shards;

import shardmesh.std;
import shardmesh.sharding;
import :offered_state;
import :rank_note;

namespace shardmesh::detail {

// The distributions of sharded values, by their entry's index.
using located_shards = std::map<std::size_t, distribution>;

// Finds the distributions of the sharded ones among `sources`. Usually every rank describes them alike. Otherwise
// (replicas that each describe their own shards, or ranks that lack the key) every rank reports its own fragments, and
// their union is used. Collective in that case.
result<located_shards> locate_shards(const offered_state& mine, std::span<const std::size_t> sources,
                                     std::span<const rank_note> notes);

}  // namespace shardmesh::detail
