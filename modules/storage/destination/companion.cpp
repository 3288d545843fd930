// SPDX-License-Identifier: Apache-2.0
module;
#include <filesystem>
module shardmesh.storage;

namespace shardmesh {

std::filesystem::path objects_beside(const std::filesystem::path& file) {
  // A URL's query belongs to the file alone.
  std::filesystem::path name =
      is_url(file) ? std::filesystem::path(file.native().substr(0, file.native().find('?'))) : file;
  return name.replace_extension(".objects.json");
}

}  // namespace shardmesh
