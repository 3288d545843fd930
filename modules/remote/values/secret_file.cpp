// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>
module shardmesh.remote;

import :secret_file;

namespace shardmesh::remote {

result<secret> read_secret_file(const std::filesystem::path& path, std::int64_t most_bytes) {
  SHARDMESH_TRY(auto bytes, read_file(path, most_bytes));
  secret text(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  wipe_memory(bytes);
  return text;
}

}  // namespace shardmesh::remote
