// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: any bytes as a file, opened as whatever it looks like, and done with it what `inspect` and `verify`
// do. A second half after a marker is the index beside it, so that folders are read, too.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

import shardmesh.checkpoint;
import shardmesh.storage;

namespace fs = std::filesystem;

namespace {

void write(const fs::path& file, std::string_view bytes) {
  std::ofstream(file, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

void look_at(const fs::path& path) {
  using namespace shardmesh;
  auto reader = open_checkpoint(path);
  static_cast<void>(find_globals(path, reader ? reader->get() : nullptr, {.threads = 1}));
  if (!reader) return;
  for (std::size_t i = 0; i < (*reader)->contents().objects.size(); ++i) {
    static_cast<void>((*reader)->read_object(i));
    static_cast<void>((*reader)->object_archive(i));
  }
  static_cast<void>(verify(**reader, {.threads = 1}));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fs::path folder = fs::temp_directory_path() / ("shardmesh-fuzz-" + std::to_string(::getpid()));
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  constexpr std::string_view marker = "\n--index--\n";
  const std::size_t cut = input.find(marker);
  fs::create_directories(folder);
  if (cut == std::string_view::npos) {
    write(folder / "input.pt", input);
    look_at(folder / "input.pt");
  } else {
    write(folder / "model.safetensors", input.substr(0, cut));
    write(folder / "model.safetensors.index.json", input.substr(cut + marker.size()));
    look_at(folder);
  }
  fs::remove_all(folder);
  return 0;
}
