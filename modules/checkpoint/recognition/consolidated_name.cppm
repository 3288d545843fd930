// SPDX-License-Identifier: Apache-2.0
// Not exported: the names of the files in which Meta publishes its models: consolidated.00.pth, consolidated.01.pth,
// and so on. Opening the files is in consolidated_files.
module shardmesh.checkpoint:consolidated_name;

import shardmesh.std;
import shardmesh.core;

namespace shardmesh {

// Returns the number in such a name: 7 for "consolidated.07.pth", and for Mistral's "consolidated.07.pt". Returns
// nothing for other names.
std::optional<std::int64_t> parse_consolidated_name(std::string_view file);

// Lists such files of a folder by their numbers. errc::io; errc::duplicate_key for two files of one number.
result<std::map<std::int64_t, std::string>> list_consolidated_files(const std::filesystem::path& folder);

}  // namespace shardmesh
