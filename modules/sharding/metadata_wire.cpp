// SPDX-License-Identifier: Apache-2.0
module;
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
module shardmesh.sharding;

namespace shardmesh::detail {
namespace {

// Reads an enumerator; `last` bounds the accepted values.
template <class Enum>
Enum read_up_to(wire_reader& in, Enum last) {
  return static_cast<Enum>(in.in_range(0, static_cast<std::int64_t>(last)));
}

}  // namespace

void write(wire_writer& out, const tensor_properties& value) {
  out.number(static_cast<std::int64_t>(value.type));
  out.number(static_cast<std::int64_t>(value.storage));
  out.flag(value.requires_grad);
  out.number(static_cast<std::int64_t>(value.format));
  out.flag(value.pin_memory);
}

void write(wire_writer& out, const shard_metadata& value) {
  out.where({value.offsets, value.sizes});
  out.flag(value.placement.has_value());
  if (!value.placement) return;
  out.flag(value.placement->rank.has_value());
  if (value.placement->rank) out.number(*value.placement->rank);
  out.text(value.placement->worker);
  out.number(static_cast<std::int64_t>(value.placement->where.type));
  out.number(value.placement->where.index);
}

tensor_properties read_properties(wire_reader& in) {
  tensor_properties made;
  made.type = read_up_to(in, dtype::bits4x2);
  made.storage = read_up_to(in, tensor_storage::jagged);
  made.requires_grad = in.flag();
  made.format = read_up_to(in, memory_format::channels_last_3d);
  made.pin_memory = in.flag();
  return made;
}

shard_metadata read_shard(wire_reader& in) {
  const box where = in.where();
  shard_metadata made{where.offsets, where.sizes, std::nullopt};
  if (!in.flag()) return made;
  remote_device placement;
  if (in.flag()) placement.rank = static_cast<std::int32_t>(in.in_range(0, std::numeric_limits<std::int32_t>::max()));
  placement.worker = in.text();
  placement.where.type = read_up_to(in, device_type::other);
  placement.where.index = static_cast<std::int16_t>(in.in_range(-1, std::numeric_limits<std::int16_t>::max()));
  made.placement = std::move(placement);
  return made;
}

}  // namespace shardmesh::detail
