// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <plural.hpp>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>
module shardmesh.sharding;

namespace shardmesh::detail {

result<void> check_shard_tensor(const extents& tensor_sizes, const shard_metadata& metadata) {
  if (tensor_sizes == metadata.sizes) return {};
  return at_shard(fail(errc::shape_mismatch, "a shard's tensor does not have the shard's sizes")
                      .with_values(to_string(metadata.sizes), to_string(tensor_sizes)),
                  metadata);
}

result<void> check_shard_nested(const extents& nested_size, std::int32_t nested_depth, const shard_metadata& metadata) {
  if (nested_depth + 1 > max_shard_nesting)
    return at_shard(fail(errc::invalid_argument, "sharded tensors are nested too deeply")
                        .with_values(fmt::format("at most {}", max_shard_nesting), std::to_string(nested_depth + 1)),
                    metadata);
  return check_shard_tensor(nested_size, metadata);
}

result<std::vector<std::size_t>> order_of_local_shards(std::span<const shard_metadata> local,
                                                       const sharded_tensor_metadata& metadata, const rank_group& group,
                                                       std::int32_t rank) {
  if (rank < 0 || rank >= group.size())
    return fail(errc::invalid_argument, "this rank is not in the group")
        .with_values(fmt::format("0 to {}", group.size() - 1), std::to_string(rank));
  std::vector<const shard_metadata*> listed;  // this rank's shards in the metadata
  for (const shard_metadata& shard : metadata.shards)
    if (shard.rank() == group.global(rank)) listed.push_back(&shard);
  // Sort both sides by box; equal boxes keep their order.
  std::vector<std::size_t> by_box(listed.size()), local_by_box(local.size());
  std::iota(by_box.begin(), by_box.end(), std::size_t{0});
  std::iota(local_by_box.begin(), local_by_box.end(), std::size_t{0});
  using place = std::tuple<const shard_metadata&, std::size_t>;
  std::ranges::sort(by_box, {}, [&](std::size_t i) { return place(*listed[i], i); });
  std::ranges::sort(local_by_box, {}, [&](std::size_t i) { return place(local[i], i); });
  std::vector<std::size_t> order(local.size());
  for (std::size_t i = 0; i < std::max(local.size(), listed.size()); ++i) {
    const bool has_local = i < local.size(), has_listed = i < listed.size();
    if (has_local && has_listed && local[local_by_box[i]] == *listed[by_box[i]]) {
      order[local_by_box[i]] = by_box[i];
      continue;
    }
    if (has_local && (!has_listed || local[local_by_box[i]] < *listed[by_box[i]])) {
      const shard_metadata& shard = local[local_by_box[i]];
      return at_shard(fail(errc::invalid_argument, "a local shard is not one of this rank's shards in the metadata")
                          .with_values(fmt::format("one of {} of rank {}", detail::counted(listed.size(), "shard"),
                                                   group.global(rank)),
                                       to_string(shard)),
                      shard);
    }
    const shard_metadata& shard = *listed[by_box[i]];
    return at_shard(fail(errc::invalid_argument, "the metadata gives this rank a shard that it does not hold")
                        .with_values(fmt::format("{} local shards", listed.size()), std::to_string(local.size())),
                    shard);
  }
  return order;
}

}  // namespace shardmesh::detail
