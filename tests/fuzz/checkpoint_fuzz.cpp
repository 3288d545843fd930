// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: opens any bytes as whatever file they look like, and does with it what `inspect` and `verify` do.
// Bytes after a marker become the index beside it, so that folders are read as well.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <look_at.hpp>
#include <string>
#include <string_view>

namespace fs = std::filesystem;

namespace {

void write(const fs::path& file, std::string_view bytes) {
  std::ofstream(file, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
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
    fuzz::look_at(folder / "input.pt");
  } else {
    write(folder / "model.safetensors", input.substr(0, cut));
    write(folder / "model.safetensors.index.json", input.substr(cut + marker.size()));
    fuzz::look_at(folder);
  }
  fs::remove_all(folder);
  return 0;
}
