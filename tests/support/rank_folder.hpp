// SPDX-License-Identifier: Apache-2.0
// A folder that all ranks of a test share, even if they are processes. Include before imports.
#pragma once
#include <fabric.hpp>
#include <filesystem>
#include <string>
#include <system_error>

namespace fabric {

/// The same folder on every rank of this run; `name` is unique to the test. The destructor removes it.
struct rank_folder {
  std::filesystem::path path;
  explicit rank_folder(const std::string& name)
      : path(std::filesystem::temp_directory_path() / ("shardmesh-ranks-" + std::to_string(seed()) + "-" + name)) {
    std::error_code ignored;
    std::filesystem::create_directories(path, ignored);
  }
  rank_folder(const rank_folder&) = delete;
  ~rank_folder() {
    // No rank removes it while another rank reads it or has recreated it for the next test.
    await_all();
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
    await_all();
  }

 private:
  static void await_all() {
    for (const kind& one : all()) one.run(1, [](void*) { return std::string(); });
  }
};

}  // namespace fabric
