// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>
module shardmesh.torch_checkpointing;

import :folder_reader;

namespace shardmesh::torch_checkpointing {
namespace fs = places;

bool is_folder(const fs::path& folder) {
  std::error_code code;
  return fs::is_regular_file(folder / metadata_file_name, code);
}

result<std::unique_ptr<checkpoint_reader>> open(const fs::path& folder, const open_options& options) {
  auto reader = std::make_unique<folder_reader>(folder, options);
  SHARDMESH_TRY(reader->open());
  return std::unique_ptr<checkpoint_reader>(std::move(reader));
}

}  // namespace shardmesh::torch_checkpointing
