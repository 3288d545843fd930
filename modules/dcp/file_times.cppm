// SPDX-License-Identifier: Apache-2.0
// Not exported: detects an interrupted overwrite from the ages of a folder's files.
module shardmesh.dcp:file_times;

import shardmesh.std;

namespace shardmesh::dcp {

// Returns those of `files` (names within the folder) that were written after `mark` in a way that copying the folder
// cannot explain. A copy creates new files, in any order. Every file that is copied after the mark is therefore newer
// than the mark, and was also created after it. A file that was created before the mark and written again afterwards
// therefore counts as rewritten. So does a newer file whose time was set (its time is older than its creation), because
// it keeps the original's time. Where the file system does not record creation times, every newer file counts.
// Cost: one system call per file.
std::vector<std::string> files_rewritten_after(const std::filesystem::path& folder, const std::string& mark,
                                               std::span<const std::string> files);

}  // namespace shardmesh::dcp
