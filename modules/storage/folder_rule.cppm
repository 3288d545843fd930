// SPDX-License-Identifier: Apache-2.0
// folder_rule: which folders an overwrite may replace. Formats know their files; who calls a writer knows the formats
// and gives the rule. Not here: whether a folder is still what was looked at (seen_destination).
export module shardmesh.storage:folder_rule;

import shardmesh.std;
import shardmesh.core;
import :seen_destination;

export namespace shardmesh {

/// errc::destination_exists, naming an entry of `folder` that keeps it from being replaced.
using folder_rule = std::function<result<void>(const std::filesystem::path& folder, const seen_destination& seen)>;

/// The files that the folder's record of checksums names, and the record; none when it cannot be read.
std::set<std::string> recorded_files(const std::filesystem::path& folder);

/// The rule where none is given: every file is one of the folder's own record of checksums.
result<void> holds_recorded_files(const std::filesystem::path& folder, const seen_destination& seen);

/// By `rule`, or by `holds_recorded_files` where it is empty.
result<void> check_replaceable(const folder_rule& rule, const std::filesystem::path& folder,
                               const seen_destination& seen);

/// The error of such rules.
error holds_more(const std::filesystem::path& folder, const std::string& entry);

}  // namespace shardmesh
