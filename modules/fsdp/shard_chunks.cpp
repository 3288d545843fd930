// SPDX-License-Identifier: Apache-2.0
module;
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <shardmesh/try.hpp>
module shardmesh.fsdp;

import :shard_chunks;

namespace shardmesh::detail {

result<std::vector<group_chunk>> chunks_of(const fsdp_unit& unit, std::size_t parameter, const chunk_options& options) {
  std::vector<group_chunk> made;
  const std::int32_t parts = unit.group.size();
  const std::int32_t columns = unit.parallel.is_none() ? 1 : unit.parallel.columns();
  for (std::int32_t c = 0; c < columns; ++c) {
    extents shape = parameter_shape(unit, parameter), origin = extents::filled(shape.rank(), 0);
    if (!unit.parallel.is_none()) {
      const layout& l = unit.parallel.placed(parameter);
      const std::int32_t rank = unit.parallel.rank_in(c);
      if (l.boxes(rank).size() > 1)
        return fail(errc::unsupported, "tensor parallelism gives a rank several boxes, which are not one shard")
            .with_rank(rank)
            .with_values("one box per rank", std::to_string(l.boxes(rank).size()))
            .with_hint("make dtensors: sharded_form::dtensor");
      shape = l.local_shape(rank);
      origin = l.first_index(rank);
    }
    SHARDMESH_TRY(const auto chunks, chunk_boxes(shape, parts, options));
    for (std::size_t p = 0; p < chunks.size(); ++p)
      made.push_back({c * parts + static_cast<std::int32_t>(p), shifted(chunks[p], origin)});
  }
  return made;
}

result<void> describe_shards(planned_entry& entry, const shard_group& group, std::span<const group_chunk> chunks,
                             std::int32_t rank, const rank_group& ranks, std::int32_t devices_per_node) {
  auto numbering = numbering_of(ranks, group.ranks(), false);
  if (!numbering) return std::move(numbering).error().with_key(entry.key).with_rank(rank);
  const std::vector<std::int32_t> together = group.replica_of(rank);
  std::vector<std::int32_t> globals;
  for (const std::int32_t r : together) globals.push_back(numbering->global(r));
  if (globals.empty())
    return fail(errc::invalid_argument, "not all of the ranks that share this rank's flat parameter are in the group")
        .with_key(entry.key)
        .with_rank(rank);
  entry.form = entry_form::sharded_tensor;
  entry.metadata.size = entry.shape;
  entry.metadata.properties.type = entry.type;
  entry.metadata.properties.requires_grad = false;
  entry.group_rank = *group.position(rank);
  std::map<box, std::size_t> listed;  // index in the metadata, for chunks with elements
  for (const group_chunk& chunk : chunks) {
    if (!is_listed_chunk(chunk.where, entry.shape)) continue;
    const std::int32_t holder = globals[static_cast<std::size_t>(chunk.position)];
    std::size_t at = entry.metadata.shards.size();
    if (!chunk.where.is_empty()) at = listed.emplace(chunk.where, at).first->second;
    if (at == entry.metadata.shards.size())
      entry.metadata.shards.push_back(
          {chunk.where.offsets, chunk.where.sizes, placement_of_other(holder, entry.where, devices_per_node)});
    if (chunk.position != entry.group_rank) continue;
    entry.has_part = true;
    entry.own_shard = at;
    entry.local = chunk.where.sizes;
    entry.metadata.shards[at].placement = remote_device{holder, {}, entry.where};
  }
  SHARDMESH_TRY(entry.group, rank_group::make(std::move(globals)));
  return {};
}

}  // namespace shardmesh::detail
