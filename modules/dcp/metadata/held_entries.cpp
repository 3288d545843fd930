// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>

#include <cstdint>
#include <string>
module shardmesh.dcp;

import :held_entries;

namespace shardmesh::dcp {

bool are_described_alike(const held_entry& a, const held_entry& b) {
  if (a.object || b.object) return a.object && b.object;
  return a.tensor->shape == b.tensor->shape && a.tensor->type == b.tensor->type &&
         a.tensor->properties.foreign_dtype == b.tensor->properties.foreign_dtype;
}

std::string description_of(const held_entry& entry) {
  return entry.object ? "an object" : fmt::format("{} {}", name(entry.tensor->type), to_string(entry.tensor->shape));
}

void for_each_chunk(const held_entry& entry, function_ref<void(const held_chunk&)> visit) {
  const tensor_entry& tensor = *entry.tensor;
  for (std::int32_t i = 0; i < tensor.chunk_count; ++i) visit({&entry, tensor.first_chunk + i});
}

}  // namespace shardmesh::dcp
