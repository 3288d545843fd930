// SPDX-License-Identifier: Apache-2.0
// A folder for one test. Tests only.
#pragma once
#include <stdlib.h>

#include <cstdlib>
#include <filesystem>
#include <string>

/// Removed by the destructor.
struct scratch_folder {
  std::filesystem::path path;

  scratch_folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "shardmesh-test-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) std::abort();
    path = pattern;
  }
  ~scratch_folder() { std::filesystem::remove_all(path); }
  scratch_folder(const scratch_folder&) = delete;
  scratch_folder& operator=(const scratch_folder&) = delete;
  std::filesystem::path operator/(const std::string& name) const { return path / name; }
};
