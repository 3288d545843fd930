// SPDX-License-Identifier: Apache-2.0
// Not exported: the folder of the earlier checkpoint of an incremental save: which folders may be referred to, and the
// errors that name the remedy.
module shardmesh.dcp:previous_folder;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;

namespace shardmesh::dcp {

error refuse_previous(errc code, std::string what, const std::filesystem::path& folder);

// Names the folder and the remedy in an error of reading it.
error in_previous(error cause, const std::filesystem::path& folder);

// Returns the destination's absolute path as `staged_output` resolves it.
result<std::filesystem::path> resolved_destination(const std::filesystem::path& destination);

// Returns the real path of the folder that a new checkpoint at `destination` may refer to.
result<std::filesystem::path> checked_folder(const std::filesystem::path& folder,
                                             const std::filesystem::path& destination);

// Checks the record's own checksum of .metadata. A record of another save would give wrong checksums: PyTorch leaves it
// in a folder that it writes into.
result<void> check_record(const recorded_sums& record, const std::filesystem::path& folder);

}  // namespace shardmesh::dcp
