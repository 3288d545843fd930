// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: reads any bytes as a GGUF file. An accepted description must place its tensors inside the file,
// apart from one another. All values and tensors are read.
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <look_at.hpp>

import shardmesh.checkpoint;
import shardmesh.gguf;
import shardmesh.storage;

namespace fs = std::filesystem;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const shardmesh::memory_source source(bytes, "input");
  shardmesh::read_budget budget;
  const auto header = shardmesh::gguf::parse_header(source, budget);
  if (!header) return 0;
  std::vector<std::pair<std::int64_t, std::int64_t>> places;
  for (const auto& tensor : header->tensors)
    if (tensor.begin < tensor.end) places.emplace_back(tensor.begin, tensor.end);
  std::sort(places.begin(), places.end());
  std::int64_t at = header->data_begin;
  for (const auto& [begin, end] : places) {
    if (begin < at || begin % header->alignment != 0) std::abort();
    at = end;
  }
  if (!places.empty() && at > static_cast<std::int64_t>(size)) std::abort();
  static const fs::path file = fs::temp_directory_path() / ("shardmesh-fuzz-" + std::to_string(::getpid()) + ".gguf");
  std::ofstream(file, std::ios::binary).write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  fuzz::look_at(file);
  if (auto reader = shardmesh::open_checkpoint(file))
    for (const auto& tensor : (*reader)->contents().tensors)
      static_cast<void>(shardmesh::load_tensor(**reader, tensor.key));
  fs::remove(file);
  return 0;
}
