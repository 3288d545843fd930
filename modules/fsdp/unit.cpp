// SPDX-License-Identifier: Apache-2.0
module;
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>
module shardmesh.fsdp;

namespace shardmesh {

fsdp_unit parallel_unit(std::string prefix, parallel_parameters parallel, std::int32_t rank, const tensor_view& shard,
                        std::string key_suffix) {
  flat_parameter own = parallel.flat(parallel.column_of(rank).value_or(0));
  shard_group group = parallel.group();
  return {std::move(prefix), std::move(own), std::move(group), shard, std::move(key_suffix), std::move(parallel)};
}

extents parameter_shape(const fsdp_unit& unit, std::size_t parameter) {
  return unit.parallel.is_none() ? unit.parameters.parameters()[parameter].shape
                                 : unit.parallel.parameters()[parameter].shape;
}

extents flat_shape(const fsdp_unit& unit) {
  if (unit.parallel.is_none()) return {unit.parameters.unsharded_numel()};
  return {flat_offset(unit.parallel, unit.parallel.columns())};
}

bool holds_whole(const fsdp_unit& unit) {
  return !unit.parameters.is_sharded() && (unit.parallel.is_none() || unit.parallel.columns() == 1);
}

const shard_group& cells_of(const fsdp_unit& unit) {
  return unit.parallel.is_none() ? unit.group : unit.parallel.cells();
}

result<distribution> distribution_of(const fsdp_unit& unit, std::size_t parameter) {
  return unit.parallel.is_none() ? distribution_of(unit.parameters, parameter, unit.group)
                                 : distribution_of(unit.parallel, parameter);
}

result<distribution> flat_distribution(const fsdp_unit& unit) {
  return unit.parallel.is_none() ? flat_distribution(unit.parameters, unit.group) : flat_distribution(unit.parallel);
}

std::vector<box> flat_boxes(const fsdp_unit& unit) {
  const std::int32_t columns = unit.parallel.is_none() ? 1 : unit.parallel.columns();
  std::vector<box> boxes;
  for (std::int32_t c = 0; c < columns; ++c) {
    const flat_parameter& flat = unit.parallel.is_none() ? unit.parameters : unit.parallel.flat(c);
    const std::int64_t begin = unit.parallel.is_none() ? 0 : flat_offset(unit.parallel, c);
    for (std::int32_t p = 0; p < unit.group.size(); ++p) {
      const index_range held = flat.shard_range(p);
      boxes.push_back({{begin + held.begin}, {held.size}});
    }
  }
  return boxes;
}

}  // namespace shardmesh
