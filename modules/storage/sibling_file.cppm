// SPDX-License-Identifier: Apache-2.0
// Files of a folder beside a checkpoint's folder, to which an incremental checkpoint refers. `dcp` writes and reads
// such references; this partition decides which names are references, and which files they may reach.
export module shardmesh.storage:sibling_file;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh {

/// A file of a folder that has the same parent as the checkpoint's folder. Its reference is "../FOLDER/FILE".
struct sibling_file {
  std::string folder, file;
  friend bool operator==(const sibling_file&, const sibling_file&) = default;
};

/// Parses a reference: exactly "../FOLDER/FILE", where FILE ends with ".distcp". Only such files can be reached, so
/// that a checkpoint in a user's folder cannot name the user's keys or settings. Returns nothing for any other text.
std::optional<sibling_file> parse_sibling_file(std::string_view reference);

/// Returns the reference: "../step-90/__0_0.distcp".
std::string to_string(const sibling_file& sibling);

/// Checks that plain names lead from the parent of `folder` to a regular file. Links are refused, even those that end
/// in the right folder.
/// \errors errc::bad_format when the file is missing or not a regular file; errc::unsafe_path for a link; errc::io
/// Cost: a few system calls.
result<void> check_sibling(const std::filesystem::path& folder, const sibling_file& sibling);

}  // namespace shardmesh
