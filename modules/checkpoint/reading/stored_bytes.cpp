// SPDX-License-Identifier: Apache-2.0
module;
#include <cstddef>
#include <cstdint>
module shardmesh.checkpoint;

import shardmesh.checkpoint_core;

namespace shardmesh {

std::int64_t bytes_of(const catalog& contents, const tensor_entry& tensor) {
  if (tensor.type != dtype::undefined) {
    const auto volume = checked_volume(tensor.shape);
    return volume ? size_bytes(tensor.type, *volume).value_or(0) : 0;
  }
  std::int64_t total = 0;
  for (std::int32_t chunk = tensor.first_chunk; chunk < tensor.first_chunk + tensor.chunk_count; ++chunk)
    total = checked_add(total, contents.chunk_places[static_cast<std::size_t>(chunk)].length).value_or(INT64_MAX);
  return total;
}

}  // namespace shardmesh
