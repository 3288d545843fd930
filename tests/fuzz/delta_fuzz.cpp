// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: reads any bytes as a delta over a small base. Its header gets the digests and the places that it
// needs, so that the description is parsed. All entries are read.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

import shardmesh.checkpoint;
import shardmesh.core;
import shardmesh.delta;
import shardmesh.digest;

namespace fs = std::filesystem;
using namespace shardmesh;

namespace {

constexpr std::size_t header_bytes = 64;

// The folder of this process, with the base that the seed's description expects.
fs::path prepared_folder() {
  const fs::path folder = fs::temp_directory_path() / ("shardmesh-fuzz-" + std::to_string(::getpid()));
  fs::create_directories(folder);
  const host_tensor changed = host_tensor::zeros(dtype::int16, {4, 6}).value();
  const host_tensor kept = host_tensor::zeros(dtype::uint8, {48}).value();
  const std::vector<save_tensor> tensors{{"changed", {}, {4, 6}, {{box::whole({4, 6}), view_of(changed)}}},
                                         {"kept", {}, {48}, {{box::whole({48}), view_of(kept)}}}};
  save(folder / "base.safetensors", tensors, target_format::safetensors, {.overwrite = true, .durable = false}).value();
  return folder;
}

void put_digest(std::vector<std::byte>& file, std::size_t at, const digest128& digest) {
  std::memcpy(file.data() + at, &digest.low, sizeof digest.low);
  std::memcpy(file.data() + at + sizeof digest.low, &digest.high, sizeof digest.high);
}

// Keeps the place of the description if it lies in the file.
void sign(std::vector<std::byte>& file) {
  std::int64_t begin = 0;
  std::memcpy(&begin, file.data() + 16, sizeof begin);
  const auto size = static_cast<std::int64_t>(file.size());
  if (begin < static_cast<std::int64_t>(header_bytes) || begin > size) begin = header_bytes;
  const std::int64_t length = size - begin;
  std::memcpy(file.data() + 16, &begin, sizeof begin);
  std::memcpy(file.data() + 24, &length, sizeof length);
  put_digest(file, 32, xxh3(std::span(file).subspan(static_cast<std::size_t>(begin))));
  put_digest(file, 48, xxh3(std::span(file).first(48)));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < header_bytes) return 0;
  static const fs::path folder = prepared_folder();
  const auto given = std::as_bytes(std::span(data, size));
  std::vector<std::byte> file(given.begin(), given.end());
  sign(file);
  const fs::path path = folder / "new.delta";
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(file.data()), static_cast<std::streamsize>(file.size()));
  const auto reader = open_delta(open_checkpoint(folder / "base.safetensors").value(), path);
  if (!reader) return 0;
  static_cast<void>(find_globals(path, reader->get(), {.threads = 1}));
  static_cast<void>(verify(**reader, {.threads = 1}));
  for (const tensor_entry& tensor : (*reader)->contents().tensors) static_cast<void>(load_tensor(**reader, tensor.key));
  for (std::size_t i = 0; i < (*reader)->contents().objects.size(); ++i) {
    static_cast<void>((*reader)->read_object(i));
    static_cast<void>((*reader)->object_archive(i));
  }
  return 0;
}
