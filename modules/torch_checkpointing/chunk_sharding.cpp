// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.torch_checkpointing;

import :chunk_sharding;

namespace shardmesh::torch_checkpointing {
namespace {

// Returns each rank's chunks as one box; nothing when some rank's chunks do not form a box.
std::optional<std::vector<rank_box>> boxes_of_ranks(std::span<const output_chunk> chunks) {
  struct held {
    box around;
    std::int64_t volume = 0;
  };
  std::map<std::int32_t, held> by_rank;
  for (const output_chunk& chunk : chunks) {
    if (chunk.where.is_empty()) continue;
    const auto [found, is_new] = by_rank.try_emplace(chunk.rank, held{chunk.where, 0});
    box& around = found->second.around;
    for (std::size_t d = 0; d < around.rank(); ++d) {
      const std::int64_t begin = std::min(around.offsets[d], chunk.where.offsets[d]);
      const std::int64_t end =
          std::max(around.offsets[d] + around.sizes[d], chunk.where.offsets[d] + chunk.where.sizes[d]);
      around.offsets[d] = begin;
      around.sizes[d] = end - begin;
    }
    found->second.volume += chunk.where.volume();
  }
  std::vector<rank_box> parts;
  for (const auto& [rank, one] : by_rank) {
    if (one.volume != one.around.volume()) return std::nullopt;
    parts.push_back({rank, one.around});
  }
  return parts;
}

// Appends the begins of `count` parts of [begin, begin + size), as torch.chunk cuts. Returns false when a part would be
// empty.
bool append_cuts(std::int64_t begin, std::int64_t size, std::int64_t count, std::vector<std::int64_t>& cuts) {
  const std::int64_t step = (size + count - 1) / count;
  if (step == 0 || (size + step - 1) / step != count) return false;
  for (std::int64_t i = 0; i < count; ++i) cuts.push_back(begin + i * step);
  return true;
}

// Returns the mesh dimensions that cut one tensor dimension at these places, outermost first: {4}, or {2, 2}.
std::optional<std::vector<std::int64_t>> factors_of(std::int64_t size, const std::vector<std::int64_t>& cuts) {
  const auto count = static_cast<std::int64_t>(cuts.size());
  std::vector<std::int64_t> made;
  if (append_cuts(0, size, count, made) && made == cuts) return std::vector{count};
  for (std::int64_t outer = 2; outer < count; ++outer) {
    if (count % outer != 0) continue;
    std::vector<std::int64_t> begins;
    if (!append_cuts(0, size, outer, begins)) continue;
    made.clear();
    bool fits = true;
    for (std::size_t i = 0; i < begins.size() && fits; ++i) {
      const std::int64_t end = i + 1 < begins.size() ? begins[i + 1] : size;
      fits = append_cuts(begins[i], end - begins[i], count / outer, made);
    }
    if (fits && made == cuts) return std::vector{outer, count / outer};
  }
  return std::nullopt;
}

// Returns the mesh whose ranks hold exactly these parts. Its dimensions have names of our own, so no program's mesh
// equals it. The package therefore always places the parts, which are plain tensors, by this metadata. Without such
// names, it would take a rank's part for the whole tensor when program and file are cut alike.
result<std::optional<layout>> mesh_of_parts(const extents& shape, std::span<const rank_box> parts) {
  std::vector<std::vector<std::int64_t>> cuts(shape.rank());
  std::size_t cells = 1;
  for (std::size_t d = 0; d < shape.rank(); ++d) {
    for (const rank_box& part : parts) cuts[d].push_back(part.where.offsets[d]);
    std::sort(cuts[d].begin(), cuts[d].end());
    cuts[d].erase(std::unique(cuts[d].begin(), cuts[d].end()), cuts[d].end());
    if (cuts[d].size() > parts.size() / cells) return std::optional<layout>();
    cells *= cuts[d].size();
  }
  if (cells != parts.size()) return std::optional<layout>();
  std::vector<std::int64_t> sizes;
  std::vector<placement> placements;
  std::vector<std::string> names;
  for (std::size_t d = 0; d < shape.rank(); ++d) {
    if (cuts[d].size() == 1) continue;
    const auto factors = factors_of(shape[d], cuts[d]);
    if (!factors) return std::optional<layout>();
    for (const std::int64_t factor : *factors) {
      names.push_back(fmt::format("stored_{}", sizes.size()));
      sizes.push_back(factor);
      placements.push_back(placement::shard(static_cast<std::int32_t>(d)));
    }
  }
  if (sizes.size() > max_rank) return std::optional<layout>();
  std::vector<std::int32_t> ranks(parts.size());
  for (const rank_box& part : parts) {
    std::size_t position = 0;
    for (std::size_t d = 0; d < shape.rank(); ++d) {
      const auto at = std::lower_bound(cuts[d].begin(), cuts[d].end(), part.where.offsets[d]);
      const std::int64_t end = at + 1 == cuts[d].end() ? shape[d] : *(at + 1);
      if (part.where.sizes[d] != end - *at) return std::optional<layout>();
      position = position * cuts[d].size() + static_cast<std::size_t>(at - cuts[d].begin());
    }
    ranks[position] = part.rank;
  }
  SHARDMESH_TRY(device_mesh mesh, device_mesh::make(sizes, std::move(names), std::move(ranks)));
  SHARDMESH_TRY(layout made, layout::make(std::move(mesh), std::move(placements), shape));
  return std::optional(std::move(made));
}

result<sharding> whole_on(std::int32_t rank, const extents& shape, dtype type) {
  SHARDMESH_TRY(device_mesh mesh, device_mesh::make({1}, {}, {rank}));
  sharding made{shape, type, {rank}, std::nullopt, {}};
  SHARDMESH_TRY(made.laid_out, layout::make(std::move(mesh), {placement::replicate()}, shape));
  return made;
}

}  // namespace

result<chunk_sharding> sharding_of_chunks(const extents& shape, dtype type, std::span<const output_chunk> chunks) {
  chunk_sharding made;
  auto parts = boxes_of_ranks(chunks);
  made.is_gathered = !parts;
  if (!parts || parts->size() <= 1) {
    std::int32_t rank = chunks.front().rank;
    for (const output_chunk& chunk : chunks) rank = std::min(rank, chunk.rank);
    SHARDMESH_TRY(sharding one, whole_on(parts && !parts->empty() ? parts->front().rank : rank, shape, type));
    made.parts = {{one.ranks.front(), box::whole(shape)}};
    made.groups.push_back(std::move(one));
    return made;
  }
  made.parts = *std::move(parts);
  SHARDMESH_TRY(std::optional<layout> cut, mesh_of_parts(shape, made.parts));
  if (cut) {
    sharding one{shape, type, {}, std::move(cut), {}};
    for (const rank_box& part : made.parts) one.ranks.push_back(part.rank);
    made.groups.push_back(std::move(one));
    return made;
  }
  for (const rank_box& part : made.parts)
    made.groups.push_back({shape, type, {part.rank}, std::nullopt, {{part.where, extents::filled(shape.rank(), 0)}}});
  return made;
}

}  // namespace shardmesh::torch_checkpointing
