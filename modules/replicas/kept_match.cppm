// SPDX-License-Identifier: Apache-2.0
// Not exported: compares the entries that ranks want with those of a kept step.
module shardmesh.replicas:kept_match;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint;
import shardmesh.collective_checkpoint;
import :described_part;
import :kept_catalog;

namespace shardmesh {

// The index of each tensor of a catalog, by its key. Valid while the catalog lives.
using kept_keys = std::unordered_map<std::string_view, std::size_t>;

// Adds mismatches to `wanted.problems`, and the loaded, missing, and unexpected keys and the casts to `report`.
void match_entries(merged_parts& wanted, const kept_catalog& kept, const kept_keys& keys,
                   const rank_load_options& options, load_report& report);

}  // namespace shardmesh
