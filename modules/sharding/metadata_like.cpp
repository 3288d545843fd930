// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <shardmesh/try.hpp>
module shardmesh.sharding;

namespace shardmesh {
namespace detail {

std::string numbers_text(std::span<const std::int64_t> numbers) {
  return fmt::format("[{}]", fmt::join(numbers.begin(), numbers.end(), ", "));
}

std::string box_text(const shard_metadata_view& shard) {
  if (shard.is_well_formed()) return to_string(shard.where());
  return fmt::format("offsets {} and sizes {}", numbers_text(shard.offsets()), numbers_text(shard.sizes()));
}

error at_shard(error e, const shard_metadata_view& shard) {
  if (const auto rank = shard.rank()) e = std::move(e).with_rank(*rank);
  if (shard.has_box()) e = std::move(e).with_box(shard.where());
  return e;
}

result<extents> as_extents(std::span<const std::int64_t> numbers) {
  if (numbers.size() > max_rank)
    return fail(errc::rank_too_large, "a tensor has too many dimensions")
        .with_values(fmt::format("at most {}", max_rank), std::to_string(numbers.size()));
  return extents(numbers);
}

result<shard_metadata> copy_of(const shard_metadata_view& shard, std::size_t index) {
  const std::size_t dimensions = std::max(shard.offsets().size(), shard.sizes().size());
  if (dimensions > max_rank)
    return at_shard(fail(errc::rank_too_large, fmt::format("shard {} has too many dimensions", index))
                        .with_values(fmt::format("at most {}", max_rank), std::to_string(dimensions)),
                    shard);
  return shard.copy();
}

}  // namespace detail

std::string to_string(const shard_metadata_view& shard) {
  const std::string where = shard.has_box() ? to_string(shard.where())
                                            : fmt::format("offsets {}, sizes {}", detail::numbers_text(shard.offsets()),
                                                          detail::numbers_text(shard.sizes()));
  return where + (shard.placement() ? " on " + to_string(*shard.placement()) : " on no device");
}

result<sharded_tensor_metadata> sharded_tensor_metadata_view::copy() const {
  SHARDMESH_TRY(extents whole, detail::as_extents(size()));
  sharded_tensor_metadata made{{}, whole, properties()};
  made.shards.reserve(shards().size());
  for (std::size_t i = 0; i < shards().size(); ++i) {
    SHARDMESH_TRY(auto copied, detail::copy_of(shards()[i], i));
    made.shards.push_back(std::move(copied));
  }
  return made;
}

result<distribution> distribution_of(const sharded_tensor_metadata_view& metadata, const rank_group& group) {
  SHARDMESH_TRY(const extents size, detail::as_extents(metadata.size()));
  distribution_builder builder(size, owner_space::ranks);
  builder.reserve(metadata.shards().size());
  builder.at_least_owners(group.size());
  std::map<std::int32_t, std::int32_t> slots;
  for (std::size_t i = 0; i < metadata.shards().size(); ++i) {
    const shard_metadata_view shard = metadata.shards()[i];
    const auto rank = shard.rank();
    if (!rank) return detail::at_shard(fail(errc::invalid_argument, fmt::format("shard {} is on no rank", i)), shard);
    const auto owner = group.group_rank(*rank);
    if (!owner)
      return detail::at_shard(
          fail(errc::invalid_argument, fmt::format("shard {} is on a rank that is not in the group", i))
              .with_values("one of " + to_string(group), std::to_string(*rank)),
          shard);
    builder.add(*owner, slots[*owner]++, shard.offsets(), shard.sizes());
  }
  return builder.finish();
}

}  // namespace shardmesh
