// SPDX-License-Identifier: Apache-2.0
#include "layout.hpp"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "values.hpp"

import shardmesh;
import shardmesh.kernels;

namespace c_api {
using namespace shardmesh;

namespace {

// Returns the layout after checking that its mesh has the rank.
const layout& with_rank(const shardmesh_layout* handle, std::int32_t rank) {
  const layout& made = opened(handle, "layout").made;
  if (rank < 0 || rank >= made.mesh().size())
    refuse(fail(errc::out_of_bounds, "the mesh has no such rank")
               .with_rank(rank)
               .with_values("a number below " + std::to_string(made.mesh().size()), std::to_string(rank)));
  return made;
}

shardmesh_placed_box described(const placed_box& b) {
  shardmesh_placed_box made{};
  made.where = to_c(b.where);
  copy_to(made.local_offsets, b.local_offsets);
  return made;
}

}  // namespace

}  // namespace c_api

using namespace c_api;

extern "C" {

shardmesh_status shardmesh_layout_make(const char* mesh, const char* placements, const int64_t* shape, int32_t rank,
                                       const char* split_rule, shardmesh_layout** layout, shardmesh_error** error) {
  return guarded(error, layout, [&] {
    auto on = value_of(shardmesh::parse_mesh(to_text(mesh, "mesh")));
    auto placed = value_of(shardmesh::parse_placements(to_text(placements, "placements")));
    const shardmesh::extents sizes = to_sizes(shape, rank, "shape");
    const auto rule =
        split_rule == nullptr ? shardmesh::split_rule() : value_of(shardmesh::parse_split_rule(split_rule));
    auto made = std::make_unique<shardmesh_layout>();
    made->made = value_of(shardmesh::layout::make(std::move(on), std::move(placed), sizes, rule));
    return made;
  });
}

void shardmesh_layout_free(shardmesh_layout* layout) {
  delete layout;
}

shardmesh_status shardmesh_layout_rank_count(const shardmesh_layout* layout, int64_t* count, shardmesh_error** error) {
  return guarded(error, [&] { needed(count, "count") = opened(layout, "layout").made.mesh().size(); });
}

shardmesh_status shardmesh_layout_local_shape(const shardmesh_layout* layout, int32_t rank, int64_t* sizes,
                                              shardmesh_error** error) {
  return guarded(error, [&] {
    const shardmesh::extents local = with_rank(layout, rank).local_shape(rank);
    if (!local.empty()) std::copy(local.begin(), local.end(), &needed(sizes, "sizes"));
  });
}

shardmesh_status shardmesh_layout_boxes(const shardmesh_layout* layout, int32_t rank, shardmesh_placed_box* boxes,
                                        size_t capacity, size_t* count, shardmesh_error** error) {
  return guarded(error, [&] {
    const std::vector<shardmesh::placed_box> held = with_rank(layout, rank).boxes(rank);
    if (capacity > 0) needed(boxes, "boxes");
    needed(count, "count") = held.size();
    for (std::size_t i = 0; i < std::min(capacity, held.size()); ++i) boxes[i] = described(held[i]);
  });
}

}  // extern "C"
