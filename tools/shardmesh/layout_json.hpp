// SPDX-License-Identifier: Apache-2.0
// The document of `layout --json`, and the members that describe a mesh in the documents of `layout` and `plan`.
#pragma once
#include <cstdint>
#include <span>

#include "json_writer.hpp"

import shardmesh;

namespace tool {

/// The most that a document lists. It counts the rest in `"more_ranks"`, and in `"more_boxes"` of the last rank.
struct layout_limits {
  std::int64_t ranks = INT64_MAX;
  std::int64_t boxes = INT64_MAX;  // of all ranks together
};

/// Writes the members "mesh", "mesh_names" (empty if the mesh has none), and "placements" of an open object.
void write_mesh(json_writer& out, const shardmesh::device_mesh& mesh, std::span<const shardmesh::placement> placements);

/// Writes the whole document, a piece at a time: a mesh can have a million ranks. `type` is that of the elements.
void write_document(json_writer& out, const shardmesh::layout& l, shardmesh::dtype type,
                    const layout_limits& most = {});

}  // namespace tool
