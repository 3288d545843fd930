// SPDX-License-Identifier: Apache-2.0
// A cache folder for one test. Tests only.
#pragma once
#include <cstdlib>
#include <filesystem>
#include <scratch_folder.hpp>
#include <string>

/// While it lives, XDG_CACHE_HOME names an empty folder, or the given path.
class own_cache {
 public:
  own_cache() : own_cache(std::string()) {}
  explicit own_cache(const std::string& path) {
    if (const char* const value = std::getenv("XDG_CACHE_HOME")) {
      was_set_ = true;
      before_ = value;
    }
    ::setenv("XDG_CACHE_HOME", path.empty() ? folder_.path.c_str() : path.c_str(), 1);
  }
  own_cache(const own_cache&) = delete;
  own_cache& operator=(const own_cache&) = delete;
  ~own_cache() {
    if (was_set_)
      ::setenv("XDG_CACHE_HOME", before_.c_str(), 1);
    else
      ::unsetenv("XDG_CACHE_HOME");
  }
  /// The folder of compiled kernels in it.
  std::filesystem::path kernels() const { return folder_.path / "shardmesh" / "kernels"; }

 private:
  scratch_folder folder_;
  bool was_set_ = false;
  std::string before_;
};
