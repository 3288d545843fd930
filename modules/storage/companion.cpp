// SPDX-License-Identifier: Apache-2.0
module;
#include <filesystem>
module shardmesh.storage;

namespace shardmesh {

std::filesystem::path objects_beside(const std::filesystem::path& file) {
  std::filesystem::path name = file;
  return name.replace_extension(".objects.json");
}

}  // namespace shardmesh
