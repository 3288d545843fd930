// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <range/v3/view/enumerate.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <shardmesh/try.hpp>
module shardmesh.sharding;

namespace shardmesh {
namespace {

error at(error e, const shard_metadata& shard) {
  if (const auto rank = shard.rank()) e = std::move(e).with_rank(*rank);
  return e;
}

// Checks that the shard can follow `first` along dimension `cut`.
result<void> check_fits(const shard_metadata& first, const shard_metadata& shard, std::size_t index, std::size_t cut) {
  const std::size_t rank = first.sizes.rank();
  if (!shard.rank())
    return fail(errc::invalid_argument, fmt::format("shard {} has no rank, but ranks order the shards", index))
        .with_values("a placement such as rank:0/cpu", shard.placement ? to_string(*shard.placement) : "none");
  if (shard.sizes.rank() != rank || shard.offsets.rank() != rank)
    return at(
        at(fail(errc::shape_mismatch, fmt::format("shard {} has a different number of dimensions than shard 0", index))
               .with_values(to_string(first.sizes), to_string(shard.sizes)),
           first),
        shard);
  for (std::size_t d = 0; d < rank; ++d) {
    if (shard.sizes[d] < 0)
      return at(fail(errc::out_of_bounds, fmt::format("shard {} has a negative size in dimension {}", index, d))
                    .with_values("at least 0", std::to_string(shard.sizes[d])),
                shard);
    if (d != cut && shard.sizes[d] != first.sizes[d])
      return at(at(fail(errc::shape_mismatch, fmt::format("shard {} differs from shard 0 in dimension {}, which is not "
                                                          "the one that is cut",
                                                          index, d))
                       .with_values(to_string(first.sizes), to_string(shard.sizes)),
                   first),
                shard);
  }
  return {};
}

}  // namespace

result<sharded_tensor_metadata> recalc_global_sharded_tensor_metadata(sharded_tensor_metadata metadata,
                                                                      std::int32_t dim) {
  auto& shards = metadata.shards;
  const extents whole = shards.empty() ? metadata.size : shards.front().sizes;
  const auto rank = static_cast<std::int64_t>(whole.rank());
  if (dim < -rank || dim >= rank)
    return fail(errc::out_of_bounds,
                fmt::format("a tensor of {} dimensions cannot be cut along dimension {}", rank, dim))
        .with_values(rank == 0 ? "no dimension" : fmt::format("{} to {}", -rank, rank - 1), std::to_string(dim));
  const auto cut = static_cast<std::size_t>(dim < 0 ? dim + rank : dim);
  for (const auto& [i, shard] : ranges::views::enumerate(shards))
    SHARDMESH_TRY(check_fits(shards.front(), shard, i, cut));

  std::vector<shard_metadata*> by_rank;  // shards of one rank keep the list's order
  by_rank.reserve(shards.size());
  for (shard_metadata& shard : shards) by_rank.push_back(&shard);
  std::ranges::stable_sort(by_rank, {}, [](const shard_metadata* shard) { return *shard->rank(); });

  std::int64_t begin = 0;
  for (shard_metadata* shard : by_rank) {
    shard->offsets = extents::filled(whole.rank(), 0);
    shard->offsets[cut] = begin;
    const auto end = checked_add(begin, shard->sizes[cut]);
    if (!end)
      return fail(errc::overflow, fmt::format("the shards' sizes in dimension {} do not add up in 64 bits", cut))
          .with_rank(*shard->rank())
          .with_values("a sum below 2^63", fmt::format("{} + {}", begin, shard->sizes[cut]));
    begin = *end;
  }
  metadata.size = whole;
  metadata.size[cut] = begin;
  return metadata;
}

result<sharded_tensor_metadata> recalc_global_sharded_tensor_metadata(const sharded_tensor_metadata_view& metadata,
                                                                      std::int32_t dim) {
  SHARDMESH_TRY(auto ours, metadata.copy());
  return recalc_global_sharded_tensor_metadata(std::move(ours), dim);
}

}  // namespace shardmesh
