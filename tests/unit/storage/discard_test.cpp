// SPDX-License-Identifier: Apache-2.0
// Tests the removal of whole files and folders that a save wrote.
#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <scratch_folder.hpp>
#include <string>

import shardmesh.storage;

using namespace shardmesh;
namespace fs = std::filesystem;

namespace {

// Accepts folders without an entry "mine".
result<void> without_mine(const fs::path& folder, const destination_snapshot& seen) {
  if (seen.entries.contains("mine")) return holds_more(folder, "mine");
  return {};
}

void write(const fs::path& file) {
  std::ofstream(file) << "text";
}

}  // namespace

TEST_CASE("a folder or a file is removed whole, and nothing is left under a temporary name") {
  const scratch_folder scratch;
  fs::create_directory(scratch / "folder");
  for (const char* const name : {"a", "b"}) write(scratch / "folder" / name);
  write(scratch / "file");
  REQUIRE(discard_destination(scratch / "folder", without_mine));
  REQUIRE(discard_destination(scratch / "file", without_mine));
  CHECK(fs::is_empty(scratch.path));
}

TEST_CASE("a folder with an entry that the rule refuses stays as it was") {
  const scratch_folder scratch;
  fs::create_directory(scratch / "folder");
  for (const char* const name : {"a", "mine"}) write(scratch / "folder" / name);
  const auto refused = discard_destination(scratch / "folder", without_mine);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::destination_exists);
  CHECK(to_string(refused.error()).find("mine") != std::string::npos);
  CHECK(fs::exists(scratch / "folder" / "a"));
  CHECK(fs::exists(scratch / "folder" / "mine"));
}

TEST_CASE("a link is not removed, nor is its target, and a missing path is an error") {
  const scratch_folder scratch;
  fs::create_directory(scratch / "folder");
  write(scratch / "folder" / "a");
  fs::create_directory_symlink(scratch / "folder", scratch / "link");
  const auto refused = discard_destination(scratch / "link", without_mine);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::destination_exists);
  CHECK(fs::exists(scratch / "folder" / "a"));
  CHECK(fs::is_symlink(scratch / "link"));
  const auto missing = discard_destination(scratch / "none", without_mine);
  REQUIRE_FALSE(missing);
  CHECK(missing.error().sys == ENOENT);
}

TEST_CASE("an entry in a sub-folder stays, and the error names the leftover") {
  const scratch_folder scratch;
  fs::create_directories(scratch / "folder" / "inner");
  write(scratch / "folder" / "inner" / "a");
  const auto refused = discard_destination(scratch / "folder", without_mine);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::io);
  CHECK(refused.error().file.find("shardmesh-tmp") != std::string::npos);
  CHECK(fs::exists(fs::path(refused.error().file) / "inner" / "a"));
}
