// SPDX-License-Identifier: Apache-2.0
// Not exported: what the ages of a folder's files say about an overwrite that was interrupted.
module shardmesh.dcp:file_times;

import shardmesh.std;

namespace shardmesh::dcp {

// Those of `files` (names within the folder) that were written after `mark` in a way that copying the folder cannot
// explain. A copy makes files anew, in any order, so all that come after the mark are newer than it: they came into
// being after it, too. A file that is older than the mark and was written again afterwards did not come by a copy; nor
// did one whose time was given to it (it is older than the file itself), which keeps the original's. Where the file
// system does not know when a file came into being, a newer one counts. Cost: one system call a file.
std::vector<std::string> files_rewritten_after(const std::filesystem::path& folder, const std::string& mark,
                                               std::span<const std::string> files);

}  // namespace shardmesh::dcp
