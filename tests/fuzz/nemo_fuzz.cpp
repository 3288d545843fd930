// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: reads any bytes as a tar archive, and as a .nemo file. Members of an accepted archive lie inside
// it, in its order, apart from one another, and have plain names. All entries are read.
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
import shardmesh.storage;

namespace fs = std::filesystem;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const shardmesh::memory_source source(std::as_bytes(std::span(data, size)), "input");
  shardmesh::read_budget budget;
  if (const auto members = shardmesh::read_tar(source, budget)) {
    std::int64_t at = 0;
    for (const auto& member : *members) {
      if (member.offset < at || member.size_bytes < 0 ||
          member.size_bytes > static_cast<std::int64_t>(size) - member.offset)
        std::abort();
      at = member.offset + member.size_bytes;
      if (member.name.empty() || member.name.front() == '/' ||
          ("/" + member.name + "/").find("/../") != std::string::npos)
        std::abort();
    }
  }
  static const fs::path file = fs::temp_directory_path() / ("shardmesh-fuzz-" + std::to_string(::getpid()) + ".nemo");
  std::ofstream(file, std::ios::binary).write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  fuzz::look_at(file);
  if (auto reader = shardmesh::open_checkpoint(file))
    for (const auto& tensor : (*reader)->contents().tensors)
      static_cast<void>(shardmesh::load_tensor(**reader, tensor.key));
  fs::remove(file);
  return 0;
}
