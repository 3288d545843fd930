// SPDX-License-Identifier: Apache-2.0
// Makes safetensors bytes by hand, and temporary folders.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace safetensors_files {

/// 8-byte length, `json`, then `data_bytes` bytes 0, 1, 2, ...
inline std::string bytes(std::string_view json, std::size_t data_bytes) {
  std::string made;
  for (int at = 0; at < 8; ++at) made += static_cast<char>(static_cast<std::uint64_t>(json.size()) >> (8 * at) & 0xFF);
  made += json;
  for (std::size_t i = 0; i < data_bytes; ++i) made += static_cast<char>(i);
  return made;
}

/// A new empty folder under the system's temporary folder.
class temporary_folder {
 public:
  temporary_folder() {
    std::string name = (std::filesystem::temp_directory_path() / "shardmesh-test-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  temporary_folder(const temporary_folder&) = delete;
  ~temporary_folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path write(const std::string& name, std::string_view content) const {
    const auto file = path_ / name;
    std::ofstream(file, std::ios::binary).write(content.data(), static_cast<std::streamsize>(content.size()));
    return file;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace safetensors_files
