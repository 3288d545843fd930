// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

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
    } else {  // `load` reports the missing entry
      requests.push_back({one.key, box::whole(one.to.sizes), one.to});
    }
  }
  placement_resolution placed = resolve_placements(stored, mesh, rules, placing);
  if (!placed.ok()) return std::move(placed.errors.front()).with_file(reader.path().string());
  for (std::size_t i = 0; i < stored.size(); ++i) {
    const keyed_memory& one = *found[i];
    const auto named = [&](error cause) {
      return std::move(cause).with_file(reader.path().string()).with_key(one.key);
    };
    auto laid = stored_layout(mesh, std::move(placed.placements[i]), stored[i].shape);
    if (!laid) return named(std::move(laid).error());
    auto parts = parts_of(one.to, *laid, rank);
    if (!parts) return named(std::move(parts).error());
    for (const local_part& part : *parts) requests.push_back({one.key, part.where, part.memory});
  }
  return requests;
}

}  // namespace shardmesh::detail
