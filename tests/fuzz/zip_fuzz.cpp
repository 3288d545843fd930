// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: reads or refuses any bytes as a ZIP directory, and every record.
#include <cstddef>
#include <cstdint>
#include <span>

import shardmesh.checkpoint;
import shardmesh.storage;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const shardmesh::memory_source source(std::as_bytes(std::span(data, size)), "fuzz");
  const auto directory = shardmesh::zip_directory::read(source);
  if (!directory) return 0;
  for (const shardmesh::zip_record& record : directory->records())
    static_cast<void>(shardmesh::read_record(source, record, 1 << 22));
  return 0;
}
