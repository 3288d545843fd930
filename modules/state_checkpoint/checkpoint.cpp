// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string_view>
#include <utility>
module shardmesh.state_checkpoint;

import shardmesh.checkpoint_core;

namespace shardmesh {

result<object_value> checkpoint::object(std::string_view key) const {
  const catalog& contents = reader_->contents();
  const object_entry* const found = contents.find_object(key);
  if (found == nullptr) return no_such_entry(*reader_, key, entry_kind::object);
  return reader_->read_object(static_cast<std::size_t>(found - contents.objects.data()));
}

result<checkpoint> checkpoint::select(const selection_options& selection) const {
  SHARDMESH_TRY(auto view, select_entries(reader_, selection));
  return checkpoint(std::move(view));
}

result<checkpoint> checkpoint::dequantized(const dequantize_options& options) const {
  SHARDMESH_TRY(auto shared, select_entries(reader_));
  SHARDMESH_TRY(auto view, shardmesh::dequantized(std::move(shared), options));
  return checkpoint(std::move(view));
}

result<checkpoint> open(const std::filesystem::path& path, const open_options& options) {
  SHARDMESH_TRY(auto reader, open_checkpoint(path, options));
  return checkpoint(std::move(reader));
}

}  // namespace shardmesh
