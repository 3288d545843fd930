// SPDX-License-Identifier: Apache-2.0
// Not exported: lists the files of a folder that may be, or hold, pickles.
module shardmesh.checkpoint:searched_files;

import shardmesh.std;
import shardmesh.checkpoint_core;

namespace shardmesh {

/// Returns the files directly in a folder that may be, or hold, pickles, sorted. The other files hold items.
std::vector<std::filesystem::path> files_beside(const std::filesystem::path& folder);

/// For a folder of parts: returns every file below it, and the files of its entries, which may lie behind links.
std::vector<std::filesystem::path> files_below(const std::filesystem::path& folder, const catalog& contents);

}  // namespace shardmesh
