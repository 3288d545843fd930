// SPDX-License-Identifier: Apache-2.0
// The plan of a move of all tensors of a checkpoint between two meshes, perhaps into another naming convention:
// `plan CKPT`. The plan of one tensor is in plan.cpp.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "json_writer.hpp"
#include "mapping_options.hpp"
#include "plan_json.hpp"

import shardmesh;
import shardmesh.transfer;

namespace tool {

struct common_options;

/// One side of the move.
struct placed_mesh {
  plan_side all;                                 // the placements of tensors that no rule names
  std::vector<shardmesh::placement_rule> rules;  // the first that matches a key decides
  bool has_implicit_default = false;             // `all` replicates, because nothing else was given: a note says so
};

/// Parses the values of --from-place, --to-place, and --place.
shardmesh::result<std::vector<shardmesh::placement_rule>> parse_rules(const std::vector<std::string>& texts);

/// Writes a member with the mesh, its placements, and its rules.
void write_mesh_side(json_writer& out, std::string_view name, const placed_mesh& side);

/// Refuses a checkpoint with keys under which the ranks saved different values: such a key has several shapes, and the
/// catalog lists that of the first rank.
/// \errors errc::disagreement for each such key
shardmesh::result<void> check_agreement(const shardmesh::checkpoint_reader& reader);

/// The tensors of a checkpoint on a mesh.
struct placed_on_mesh {
  std::vector<shardmesh::distribution> where;  // per tensor
  std::vector<std::int64_t> held;              // bytes, per rank
};

/// Places each tensor of a checkpoint on a mesh. Adds notes about the rules.
/// \errors those of `resolve_placements`; errc::unsupported for a tensor without plain elements
shardmesh::result<placed_on_mesh> place_tensors(const shardmesh::checkpoint_reader& reader, const placed_mesh& side,
                                                const shardmesh::split_rule& rule, std::vector<std::string>& notes);

/// The command, parsed.
struct checkpoint_plan_request {
  std::string source;
  placed_mesh from, to;
  shardmesh::split_rule rule;
  mapping_arguments mapping;
};

/// The plan, and the bytes of tensors on each rank.
struct checkpoint_plan {
  shardmesh::transfer_plan plan;
  shardmesh::plan_cost cost;
  std::int64_t from_tensors = 0, to_tensors = 0;
  std::vector<std::int64_t> held_before, held_after;  // per rank
  std::vector<std::string> notes;
  std::vector<shardmesh::error> warnings, problems;  // of the checkpoint's reader
};

/// Opens the checkpoint and plans the move. No tensor is read.
/// \errors those of opening, of the mapping, and of `resolve_placements`; errc::disagreement for each key under which
///         the ranks saved different values; errc::unsupported for a tensor without plain elements; those of `plan`
shardmesh::result<checkpoint_plan> plan_checkpoint(const checkpoint_plan_request& request,
                                                   const common_options& common);

/// Returns the totals, a line for each of the first 64 ranks, and the traffic between ranks.
std::string text_of(const checkpoint_plan& made, bool color);
/// Writes the whole document.
void write_document(json_writer& out, const checkpoint_plan& made, const checkpoint_plan_request& request);

}  // namespace tool
