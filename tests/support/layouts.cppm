// SPDX-License-Identifier: Apache-2.0
// shardmesh.test.layouts: golden JSON as placements and layouts, and the fragments of a distribution. Tests only.
module;
#include <golden.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

export module shardmesh.test.layouts;

import shardmesh.layout;

export namespace golden {

/// Parses {"type": "Shard", "dim": 1}, and so on.
shardmesh::placement to_placement(const nlohmann::json& spelled);

/// Parses the short form of seeds/tp_fsdp.json: S1, SS0:2, R, P.
shardmesh::placement short_placement(const std::string& spelled);

std::vector<shardmesh::placement> to_placements(const nlohmann::json& list);

shardmesh::layout to_layout(const nlohmann::json& mesh, const nlohmann::json& shape, const nlohmann::json& placements);

}  // namespace golden

export namespace fragments {

/// The fragments of every owner, in order.
std::vector<shardmesh::fragment> all_of(const shardmesh::distribution& whole);

}  // namespace fragments
