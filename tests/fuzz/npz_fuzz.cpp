// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: reads any bytes as the header of a NumPy array, and as a file of NumPy. An accepted header states
// its own size, and elements whose size fits. All entries are read.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>

#include <look_at.hpp>

import shardmesh.checkpoint;
import shardmesh.npz;

namespace fs = std::filesystem;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto length = shardmesh::npz::header_bytes_of(bytes);
  if (length && *length <= static_cast<std::int64_t>(size)) {
    const auto header = shardmesh::npz::parse_array_header(bytes.first(static_cast<std::size_t>(*length)));
    if (header && (header->data_begin != *length || header->data_bytes < 0)) std::abort();
  }
  // A name with the suffix is opened as NumPy's, whatever its bytes are.
  static const fs::path file = fs::temp_directory_path() / ("shardmesh-fuzz-" + std::to_string(::getpid()) + ".npz");
  std::ofstream(file, std::ios::binary).write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  fuzz::look_at(file);
  if (auto reader = shardmesh::open_checkpoint(file))
    for (const auto& tensor : (*reader)->contents().tensors)
      static_cast<void>(shardmesh::load_tensor(**reader, tensor.key));
  fs::remove(file);
  return 0;
}
