// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardmesh/try.hpp>
module shardmesh.fsdp;

namespace shardmesh {
namespace {

result<void> check_group(const flat_parameter& flat, const shard_group& group) {
  if (group.size() == flat.group_size()) return {};
  return fail(errc::invalid_argument, "the group of ranks is not as large as the flat parameter's")
      .with_values(fmt::format("{} positions", flat.group_size()), std::to_string(group.size()));
}

result<void> check_shard(const flat_parameter& flat, std::string_view key, std::int32_t position,
                         const const_tensor_view& shard) {
  const std::int64_t held = flat.shard_range(position).size;
  if (shard.sizes.rank() != 1 || shard.sizes[0] < held || shard.sizes[0] > flat.sharded_numel())
    return fail(errc::shape_mismatch, "a flat shard must be 1-D and hold its rank's elements, with or without padding")
        .with_key(key)
        .with_values(to_string(extents{flat.sharded_numel()}), to_string(shard.sizes));
  if (!flat.parameters().empty() && shard.type != flat.type())
    return fail(errc::dtype_mismatch, "the flat shard has a different dtype than its parameters")
        .with_key(key)
        .with_values(std::string(name(flat.type())), std::string(name(shard.type)));
  return {};
}

// The positions of the group, [first, last), that may hold elements of a range of the flat tensor.
std::pair<std::int32_t, std::int32_t> positions_of(const flat_parameter& flat, std::int64_t begin, std::int64_t numel) {
  if (numel == 0) return {0, 0};
  if (!flat.is_sharded()) return {0, flat.group_size()};
  return {static_cast<std::int32_t>(begin / flat.sharded_numel()),
          static_cast<std::int32_t>((begin + numel - 1) / flat.sharded_numel() + 1)};
}

}  // namespace

std::vector<flat_box> held_boxes(const flat_parameter& flat, std::size_t parameter, std::int32_t position) {
  const index_range held = flat.shard_range(position);
  const std::int64_t offset = flat.offset(parameter);
  const std::int64_t begin = std::max(held.begin, offset);
  const std::int64_t end = std::min(held.begin + held.size, offset + flat.numel(parameter));
  if (begin >= end) return {};
  auto boxes = boxes_of_range(flat.parameters()[parameter].shape, flat.order(parameter), {begin - offset, end - begin});
  for (flat_box& b : boxes) b.begin += offset - held.begin;
  return boxes;
}

result<distribution> distribution_of(const flat_parameter& flat, std::size_t parameter, const shard_group& group) {
  SHARDMESH_TRY(check_group(flat, group));
  distribution_builder builder(flat.parameters()[parameter].shape, owner_space::ranks);
  builder.at_least_owners(group.ranks());
  const auto [first, last] = positions_of(flat, flat.offset(parameter), flat.numel(parameter));
  for (std::int32_t position = first; position < last; ++position) {
    const auto boxes = held_boxes(flat, parameter, position);
    for (const std::int32_t rank : group.holders(position))
      for (std::size_t slot = 0; slot < boxes.size(); ++slot)
        builder.add(rank, static_cast<std::int32_t>(slot), boxes[slot].where.offsets, boxes[slot].where.sizes);
  }
  return builder.finish();
}

result<std::vector<tensor_view>> slots_of(const flat_parameter& flat, std::size_t parameter, std::int32_t position,
                                          const tensor_view& shard) {
  const parameter_info& p = flat.parameters()[parameter];
  SHARDMESH_TRY(check_shard(flat, p.fqn, position, shard));
  std::vector<tensor_view> slots;
  for (const flat_box& b : held_boxes(flat, parameter, position)) {
    tensor_view slot = subview(shard, {{b.begin}, {b.where.volume()}});
    const std::int64_t step = shard.strides[0];
    slot.sizes = b.where.sizes;
    slot.strides = p.strides;
    for (std::int64_t& stride : slot.strides) stride *= step;
    slots.push_back(slot);
  }
  return slots;
}

result<distribution> flat_distribution(const flat_parameter& flat, const shard_group& group) {
  SHARDMESH_TRY(check_group(flat, group));
  distribution_builder builder({flat.unsharded_numel()}, owner_space::ranks);
  builder.at_least_owners(group.ranks());
  for (std::int32_t position = 0; position < group.size(); ++position) {
    const index_range held = flat.shard_range(position);
    if (held.size == 0) continue;
    for (const std::int32_t rank : group.holders(position))
      builder.add(rank, 0, extents{held.begin}, extents{held.size});
  }
  return builder.finish();
}

result<std::vector<tensor_view>> flat_slots(const flat_parameter& flat, std::int32_t position,
                                            const tensor_view& shard) {
  SHARDMESH_TRY(check_shard(flat, flat_parameter_key, position, shard));
  const index_range held = flat.shard_range(position);
  if (held.size == 0) return std::vector<tensor_view>{};
  return std::vector{subview(shard, {{0}, {held.size}})};
}

}  // namespace shardmesh
