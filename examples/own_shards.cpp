// SPDX-License-Identifier: Apache-2.0
// Your own framework's shards: with adapters for its metadata and its shards, the library builds, checks, and
// recalculates them in place. Also visits the elements of a dtensor with their indices in the whole.
#include <shardmesh/shard_adapter.hpp>

#include <cstdint>
#include <cstdio>
#include <optional>
#include <vector>

import shardmesh;
import shardmesh.sharding;

// The framework's type: a process holds rows [first, first + count) of a matrix of eight columns.
struct row_block {
  std::int64_t first = 0, count = 0;
  std::int32_t process = 0;
};
struct held_rows {
  row_block block;
  std::vector<float> values;
};

template <>
struct shardmesh::shard_metadata_adapter<row_block> {
  static extents offsets(const row_block& b) { return {b.first, 0}; }
  static extents sizes(const row_block& b) { return {b.count, 8}; }
  static std::optional<remote_device> placement(const row_block& b) { return remote_device{b.process, {}, {}}; }
};
template <>
struct shardmesh::shard_adapter<held_rows> {
  static const row_block& metadata(const held_rows& h) { return h.block; }
  static tensor_view view(held_rows& h) {
    return {reinterpret_cast<std::byte*>(h.values.data()), dtype::float32, {}, {h.block.count, 8}, {8, 1}};
  }
};
static_assert(shardmesh::shard_metadata_like<row_block> && shardmesh::shard_like<held_rows>);

int main() {
  using namespace shardmesh;
  // The rows that all processes report: one is missing.
  const std::vector<row_block> blocks{{0, 4, 0}, {5, 3, 1}};
  const auto checked = check_tensor(blocks, {8, 8});
  std::printf("%s\n", checked ? "complete" : to_string(checked.error()).c_str());

  // This process's part, used in place.
  std::vector<held_rows> mine{{{5, 3, 1}, std::vector<float>(24)}};
  const auto metadata = build_metadata_from_local_shards(mine, {8, 8}, 1, rank_group::world(2)).value();
  std::printf("%s\n", to_string(metadata.shards[0]).c_str());
  for_each_element<float>(mine[0], [](const extents& global, float& value) {
    value = static_cast<float>(10 * global[0] + global[1]);
  }).value();
  std::printf("%g to %g\n", static_cast<double>(mine[0].values.front()), static_cast<double>(mine[0].values.back()));

  // A dtensor: two ranks share the columns; rank 1's part of the identity matrix.
  const auto columns = layout::make(device_mesh::make({2}).value(), {placement::shard(1)}, {4, 4}).value();
  auto identity = dtensor<host_tensor>::allocate(columns, 1, dtype::float32).value();
  for_each_element<float>(identity, [](const extents& global, float& value) {
    value = global[0] == global[1] ? 1.0F : 0.0F;
  }).value();
  std::printf("%s", draw_layout(identity).value().c_str());
  return identity.local().values<float>()[4] == 1.0F && !checked ? 0 : 1;
}
