// SPDX-License-Identifier: Apache-2.0
// Not exported: finds the files of a folder that its metadata does not name, such as items without a resharder, by
// their names.
module shardmesh.torch_checkpointing:stray_files;

import shardmesh.std;
import shardmesh.core;
import :metadata;

namespace shardmesh::torch_checkpointing {

struct stray_files {
  std::map<std::string, std::map<std::int32_t, std::string>> items;  // key -> rank -> file, from names "KEY_RANK.pt"
  std::vector<std::string> unread;                                   // other files, in order
};

// Skips names that begin with a dot. errc::io when the folder cannot be listed.
result<stray_files> find_strays(const std::filesystem::path& folder, const metadata& described);

}  // namespace shardmesh::torch_checkpointing
