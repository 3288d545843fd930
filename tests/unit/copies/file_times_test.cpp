// SPDX-License-Identifier: Apache-2.0
// Tests file times: a likely interrupted overwrite gives one warning, and a copy never gives one.
#include <catch2/catch_test_macros.hpp>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "unusual_data.hpp"

import shardmesh.checkpoint;

using namespace shardmesh;
using namespace unusual_data;
namespace fs = std::filesystem;

namespace {

const fs::path sample = checkpoint_data::golden() / "dtensor_shard0_4" / "checkpoint";

// Copies the sample file by file, with `.metadata` first or last.
std::vector<fs::path> copy_files(const fs::path& to, bool metadata_first) {
  std::vector<fs::path> items;
  if (metadata_first) fs::copy_file(sample / ".metadata", to / ".metadata");
  for (const auto& entry : fs::directory_iterator(sample))
    if (entry.path().extension() == ".distcp") {
      items.push_back(to / entry.path().filename());
      fs::copy_file(entry.path(), items.back());
      fs::permissions(items.back(), fs::perms::owner_all, fs::perm_options::add);
    }
  if (!metadata_first) fs::copy_file(sample / ".metadata", to / ".metadata");
  return items;
}

std::vector<std::string> warnings_of(const fs::path& folder) {
  std::vector<std::string> lines;
  auto reader = open_checkpoint(folder).value();
  for (const error& warning : reader->warnings()) lines.push_back(to_string(warning));
  return lines;
}

// Rewrites the first byte unchanged, and dates the file one second after `.metadata`.
void touch(const fs::path& file, const fs::path& metadata) {
  flip(file, 0, 0);
  fs::last_write_time(file, fs::last_write_time(metadata) + std::chrono::seconds(1));
}

}  // namespace

TEST_CASE("a copy that begins with .metadata is not suspected") {
  const safetensors_files::temporary_folder folder;
  copy_files(folder.path(), true);
  CHECK(warnings_of(folder.path()).empty());
}

TEST_CASE("files that were written again after .metadata are one warning with their number") {
  const safetensors_files::temporary_folder folder;
  const std::vector<fs::path> items = copy_files(folder.path(), false);
  REQUIRE(items.size() == 4);
  const fs::path metadata = folder.path() / ".metadata";
  CHECK(warnings_of(folder.path()).empty());
  touch(items[0], metadata);
  CHECK(warnings_of(folder.path()) ==
        std::vector{items[0].string() + ": is newer than .metadata: an overwrite may have been interrupted"});
  for (const fs::path& item : items) touch(item, metadata);
  const auto lines = warnings_of(folder.path());
  REQUIRE(lines.size() == 1);
  CHECK(
      lines.front().ends_with(": is newer than .metadata, like 3 more files: an overwrite may have been interrupted"));
}

TEST_CASE("times that were kept by a copy say what they said in the original") {
  const safetensors_files::temporary_folder folder;
  const std::vector<fs::path> items = copy_files(folder.path(), true);
  const auto then = fs::last_write_time(folder.path() / ".metadata") - std::chrono::hours(24);
  for (const fs::path& item : items) fs::last_write_time(item, then - std::chrono::seconds(5));
  fs::last_write_time(folder.path() / ".metadata", then);
  CHECK(warnings_of(folder.path()).empty());
  fs::last_write_time(items[1], then + std::chrono::seconds(5));
  CHECK(warnings_of(folder.path()).size() == 1);
}
