// SPDX-License-Identifier: Apache-2.0
// Not exported: the chunks of one parameter as the shards of a sharded tensor.
module shardmesh.fsdp:shard_chunks;

import shardmesh.std;
import shardmesh.sharding;
import :chunk;
import :planned;
import :shard_group;
import :unit;

namespace shardmesh::detail {

// A chunk, and the position in the group of the ranks that get it.
struct group_chunk {
  std::int32_t position = 0;
  box where;
};

// Returns the chunks of the part of every column, as FSDP cuts the parts that tensor parallelism left. With equal flat
// shards, nothing crosses columns.
// \errors errc::unsupported when tensor parallelism gives a rank several boxes; those of `chunk_boxes`
result<std::vector<group_chunk>> chunks_of(const fsdp_unit& unit, std::size_t parameter, const chunk_options& options);

// Sets the metadata of the chunks, and this rank's number within its replica. An empty part is left out if its
// dimension has elements. So a tensor without rows has an empty shard on every rank, as torch.chunk makes it. A chunk
// that several positions hold (replicated over tensor parallelism) is listed under this rank if it holds it, else under
// the first.
// \errors errc::invalid_argument when the group lacks ranks that share this rank's flat parameter
result<void> describe_shards(planned_entry& entry, const shard_group& group, std::span<const group_chunk> chunks,
                             std::int32_t rank, const rank_group& ranks, std::int32_t devices_per_node);

}  // namespace shardmesh::detail
