// SPDX-License-Identifier: Apache-2.0
// Decides which folders an overwrite may replace. Formats know their files; the caller of a writer knows the formats
// and passes the rule. `destination_snapshot` detects changes to a folder since it was examined.
export module shardmesh.storage:folder_rule;

import shardmesh.std;
import shardmesh.core;
import :destination_snapshot;

export namespace shardmesh {

/// The rule that decides whether `folder` may be replaced; `seen` has its contents when it was examined.
/// \errors errc::destination_exists, naming an entry of `folder` that prevents the replacement
using folder_rule = std::function<result<void>(const std::filesystem::path& folder, const destination_snapshot& seen)>;

/// Returns the files that the folder's checksum record names, and the record itself; nothing when the record cannot be
/// read.
std::set<std::string> recorded_files(const std::filesystem::path& folder);

/// Applies `rule`. An empty one is the default rule: the folder's own checksum record names every file in it.
result<void> check_replaceable(const folder_rule& rule, const std::filesystem::path& folder,
                               const destination_snapshot& seen);

/// Returns the error with which a rule refuses to replace `folder` because of `entry`.
error holds_more(const std::filesystem::path& folder, const std::string& entry);

}  // namespace shardmesh
