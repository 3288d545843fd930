// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: reads any bytes as a safetensors file and as an index. An accepted header must tile the file.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

import shardmesh.checkpoint;
import shardmesh.safetensors;
import shardmesh.storage;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const shardmesh::memory_source source(bytes, "input");
  if (const auto header = shardmesh::safetensors::parse_header(source)) {
    std::int64_t at = header->data_begin;
    for (const auto& entry : header->entries) {
      if (entry.begin != at) std::abort();
      at = entry.end;
    }
    if (at != static_cast<std::int64_t>(size)) std::abort();
    static_cast<void>(
        shardmesh::safetensors::read_checksums(bytes.first(static_cast<std::size_t>(header->data_begin)), *header));
  }
  static_cast<void>(shardmesh::safetensors::parse_hf_index(source));
  return 0;
}
