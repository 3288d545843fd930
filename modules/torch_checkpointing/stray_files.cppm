// SPDX-License-Identifier: Apache-2.0
// Not exported: what lies in a folder that its metadata does not name: items without a resharder, by their files'
// names.
module shardmesh.torch_checkpointing:stray_files;

import shardmesh.std;
import shardmesh.core;
import :metadata;

namespace shardmesh::torch_checkpointing {

struct stray_files {
  std::map<std::string, std::map<std::int32_t, std::string>> items;  // key -> rank -> file, of names "KEY_RANK.pt"
  std::vector<std::string> unread;                                   // other files, in order
};

// Names that begin with a dot are left out. errc::io when the folder cannot be listed.
result<stray_files> find_strays(const std::filesystem::path& folder, const metadata& described);

}  // namespace shardmesh::torch_checkpointing
