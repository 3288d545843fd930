// SPDX-License-Identifier: Apache-2.0
// Copies of tests/data/unusual and golden samples, in separate folders, for tests that damage them. Include before
// imports.
#pragma once
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>

#include "checkpoint_data.hpp"
#include "safetensors_files.hpp"

namespace unusual_data {

inline std::filesystem::path unusual() {
  return std::filesystem::path(SHARDMESH_TEST_DATA) / "unusual";
}

/// A writable copy, under its own name in a temporary folder.
class writable_copy {
 public:
  explicit writable_copy(const std::filesystem::path& from) : path_(folder_.path() / from.filename()) {
    std::filesystem::copy(from, path_, std::filesystem::copy_options::recursive);
    std::filesystem::permissions(path_, std::filesystem::perms::owner_all, std::filesystem::perm_options::add);
    if (std::filesystem::is_directory(path_))
      for (const auto& file : std::filesystem::recursive_directory_iterator(path_))
        std::filesystem::permissions(file, std::filesystem::perms::owner_all, std::filesystem::perm_options::add);
  }
  const std::filesystem::path& path() const { return path_; }
  /// A path for results, beside the copy.
  std::filesystem::path beside(const std::string& name) const { return folder_.path() / name; }

 private:
  safetensors_files::temporary_folder folder_;
  std::filesystem::path path_;
};

/// Flips bits of one byte of a file; the same call again restores it.
inline void flip(const std::filesystem::path& file, std::size_t at, unsigned mask) {
  std::fstream stream(file, std::ios::binary | std::ios::in | std::ios::out);
  stream.seekg(static_cast<std::streamoff>(at));
  const int was = stream.get();
  stream.seekp(static_cast<std::streamoff>(at));
  stream.put(static_cast<char>(static_cast<unsigned>(was) ^ mask));
}

/// Offset of the first occurrence of these bytes; npos when there is none.
inline std::size_t find_bytes(const std::filesystem::path& file, std::string_view wanted) {
  std::ifstream stream(file, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  return text.find(wanted);
}

}  // namespace unusual_data
