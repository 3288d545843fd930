// SPDX-License-Identifier: Apache-2.0
module;
#include <try.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.torch;

import shardmesh.checkpoint;
import shardmesh.layout;

namespace shardmesh::detail {

path path_inside(const path& inside, std::string_view name) {
  path where = inside;
  where.push_back(std::string(name));
  return where;
}

result<std::vector<load_request>> requests_of(std::span<const keyed_memory> entries) {
  std::vector<load_request> requests;
  for (const keyed_memory& one : entries) requests.push_back({one.key, box::whole(one.to.sizes), one.to});
  return requests;
}

result<std::vector<load_request>> requests_of(const checkpoint_reader& reader, std::span<const keyed_memory> entries,
                                              const device_mesh& mesh, std::span<const placement_rule> rules,
                                              std::int32_t rank, const placement_options& placing) {
  if (!mesh.coordinate_of(rank))
    return fail(errc::invalid_argument, "the rank is not in the mesh " + to_string(mesh)).with_rank(rank);
  std::vector<load_request> requests;
  std::vector<keyed_shape> stored;
  std::vector<const keyed_memory*> found;
  for (const keyed_memory& one : entries) {
    if (const tensor_entry* const entry = reader.contents().find(one.key)) {
      stored.push_back({one.key, entry->shape});
      found.push_back(&one);
    } else {  // `load` says what there is instead
      requests.push_back({one.key, box::whole(one.to.sizes), one.to});
    }
  }
  placement_resolution placed = resolve_placements(stored, mesh, rules, placing);
  if (!placed.ok()) return std::move(placed.errors.front()).with_file(reader.path().string());
  for (std::size_t i = 0; i < stored.size(); ++i) {
    const keyed_memory& one = *found[i];
    const auto named = [&](error cause) {
      return std::move(cause).with_file(reader.path().string()).with_key(one.key).with_rank(rank);
    };
    auto laid = stored_layout(mesh, std::move(placed.placements[i]), stored[i].shape);
    if (!laid) return named(std::move(laid).error());
    if (one.to.sizes != laid->local_shape(rank))
      return named(fail(errc::shape_mismatch, "the module's tensor is not this rank's part of " + to_string(*laid))
                       .with_values(to_string(laid->local_shape(rank)), to_string(one.to.sizes)));
    for (const placed_box& part : laid->boxes(rank)) {
      if (bits(one.to.type) % 8 != 0)
        return named(fail(errc::unaligned, std::string(name(one.to.type)) + " is not cut").with_box(part.where));
      requests.push_back({one.key, part.where, subview(one.to, {part.local_offsets, part.where.sizes})});
    }
  }
  return requests;
}

}  // namespace shardmesh::detail
