// SPDX-License-Identifier: Apache-2.0
// The document of `plan --json`.
#pragma once
#include <string>
#include <vector>

#include "json_writer.hpp"

import shardmesh;

namespace tool {

/// The layout of the tensor before or after, as given on the command line.
struct plan_side {
  shardmesh::device_mesh mesh;
  std::vector<shardmesh::placement> placements;
};

/// The number of ranks: the larger number of the two sides.
shardmesh::owner_id ranks_of(const shardmesh::transfer_plan& p);

/// Writes the whole document, a piece at a time: a plan can have a million copies.
void write_document(json_writer& out, const shardmesh::transfer_plan& p, const plan_side& from, const plan_side& to);

}  // namespace tool
