// SPDX-License-Identifier: Apache-2.0
// Tests every sample, cut short and with flipped bytes. Each gives a problem that names a file or key, or succeeds
// where the change is harmless; none crashes. SHARDMESH_PROPERTY_RUNS=long cuts at every 64th byte and makes every
// flip; other runs take a part of them.
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

import shardmesh.checkpoint;
import shardmesh.dcp;

using namespace shardmesh;
namespace fs = std::filesystem;

namespace {

const fs::path golden = fs::path(SHARDMESH_TEST_DATA) / "golden";

bool runs_long() {
  const char* text = std::getenv("SHARDMESH_PROPERTY_RUNS");
  return text != nullptr && std::string_view(text) == "long";
}

std::vector<fs::path> sample_checkpoints() {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(golden))
    if (fs::is_directory(entry.path() / "checkpoint") && entry.path().filename() != "corrupt")
      found.push_back(entry.path() / "checkpoint");
  std::sort(found.begin(), found.end());
  return found;
}

std::vector<std::byte> bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

struct scratch_copy {
  fs::path path = fs::temp_directory_path() / ("shardmesh-damage-" + std::to_string(std::random_device{}()));
  explicit scratch_copy(const fs::path& from) {
    fs::copy(from, path, fs::copy_options::recursive);
    fs::permissions(path, fs::perms::owner_all, fs::perm_options::add);
    for (const auto& file : fs::recursive_directory_iterator(path))
      fs::permissions(file, fs::perms::owner_all, fs::perm_options::add);
  }
  ~scratch_copy() { fs::remove_all(path); }
};

// The findings that a user sees for a folder: one line each, with a file or a key.
std::vector<std::string> findings(const fs::path& folder) {
  std::vector<std::string> lines;
  auto reader = open_checkpoint(folder);
  if (!reader) return {to_string(reader.error())};
  const verify_report report = verify(**reader, {.threads = 1}).value();
  for (const error& problem : report.problems) {
    CHECK((!problem.file.empty() || !problem.key.empty()));
    lines.push_back(to_string(problem));
  }
  return lines;
}

}  // namespace

TEST_CASE("a file of a sample that is cut short is a problem with a name") {
  for (const fs::path& sample : sample_checkpoints()) {
    const scratch_copy copy(sample);
    if (!findings(copy.path).empty()) continue;  // options_xor: shardmesh does not know its transform
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(copy.path)) files.push_back(entry.path());
    for (const fs::path& file : files) {
      if (!fs::is_regular_file(file)) continue;
      const std::vector<std::byte> whole = bytes_of(file);
      const std::string name = file.filename().string();
      const bool is_used = name != ".metadata.tmp" && !whole.empty();
      const std::size_t step = runs_long() ? 64 : std::max<std::size_t>(64, whole.size() / 24 / 64 * 64);
      std::size_t last = whole.size();
      for (std::size_t length = (whole.size() - 1) / step * step;; length -= step) {
        if (whole.empty()) break;
        fs::resize_file(file, length);
        INFO(file.string() << " cut to " << length << " of " << last << " bytes");
        const auto lines = findings(copy.path);
        // Stale files that nothing refers to may be cut without harm.
        const bool is_stale =
            sample.parent_path().filename() == "options_overwrite" ||
            sample.parent_path().filename() == "options_no_collectives" ||  // each rank saved its own replica
            name.ends_with(".safetensors.index.json");
        if (is_used && !is_stale && lines.empty()) {
          // A silent cut removes only the end of the file, which belongs to no item.
          CHECK(length + 64 >= last);
        }
        if (length == 0) break;
      }
      std::ofstream(file, std::ios::binary)
          .write(reinterpret_cast<const char*>(whole.data()), static_cast<std::streamsize>(whole.size()));
      CHECK(findings(copy.path).empty());
    }
  }
}

TEST_CASE("the unfinished metadata of a rank that saved without collectives is a problem") {
  const scratch_copy copy(golden / "options_no_collectives/checkpoint");
  REQUIRE(findings(copy.path).empty());
  const fs::path temporary = copy.path / "__1.metadata.tmp";
  fs::copy_file(copy.path / "__1.metadata", temporary);
  const auto overwritten = findings(copy.path);  // the old metadata is still there
  REQUIRE(overwritten.size() == 1);
  CHECK(overwritten[0].find("__1.metadata.tmp: a save was interrupted") != std::string::npos);
  fs::remove(copy.path / "__1.metadata");
  const auto unfinished = findings(copy.path);
  CHECK(std::count(unfinished.begin(), unfinished.end(), overwritten[0]) == 1);
  fs::remove(copy.path / "__0.metadata");
  const auto alone = findings(copy.path);
  REQUIRE(alone.size() == 1);
  CHECK(alone[0].find("__1.metadata.tmp: incomplete save: the metadata was being written") != std::string::npos);
}

TEST_CASE("a flipped byte of any .metadata is read, refused or reported, never believed blindly or crashed on") {
  std::int64_t flips = 0, refused = 0;
  for (const fs::path& sample : sample_checkpoints()) {
    const fs::path file = sample / ".metadata";
    if (!fs::exists(file)) continue;
    const std::vector<std::byte> whole = bytes_of(file);
    const std::size_t step = runs_long() ? 1 : 13;
    for (std::size_t at = 0; at < whole.size(); at += step) {
      for (const std::byte mask : {std::byte{1}, std::byte{0x80}, std::byte{0xFF}}) {
        std::vector<std::byte> flipped = whole;
        flipped[at] ^= mask;
        const auto parsed = dcp::parse_metadata(std::move(flipped), ".metadata");
        ++flips;
        if (!parsed) {
          ++refused;
          CHECK(parsed.error().file == ".metadata");
          CHECK(to_string(parsed.error()).find('\n') == std::string::npos);
        }
      }
    }
  }
  CHECK(flips > 1000);
  CHECK(refused > flips / 20);
}

TEST_CASE("a flipped byte of a small checkpoint's folder never crashes verify") {
  const fs::path sample = golden / "single_rank" / "checkpoint";
  const scratch_copy copy(sample);
  for (const std::string name : {".metadata", "__0_0.distcp"}) {
    const std::vector<std::byte> whole = bytes_of(copy.path / name);
    const std::size_t step = runs_long() ? 1 : 11;
    for (std::size_t at = 0; at < whole.size(); at += step) {
      {
        std::fstream file(copy.path / name, std::ios::binary | std::ios::in | std::ios::out);
        file.seekp(static_cast<std::streamoff>(at));
        file.put(static_cast<char>(whole[at] ^ std::byte{0x40}));
      }
      for (const std::string& line : findings(copy.path)) CHECK(line.find('\n') == std::string::npos);
      std::fstream file(copy.path / name, std::ios::binary | std::ios::in | std::ios::out);
      file.seekp(static_cast<std::streamoff>(at));
      file.put(static_cast<char>(whole[at]));
    }
  }
  CHECK(findings(copy.path).empty());
}

TEST_CASE("any flipped byte of what shardmesh wrote is found") {
  const fs::path sample = golden / "single_rank" / "checkpoint";
  const fs::path folder = fs::temp_directory_path() / ("shardmesh-ours-" + std::to_string(std::random_device{}()));
  fs::create_directory(folder);
  {
    auto reader = open_checkpoint(sample).value();
    REQUIRE(convert(*reader, folder / "dcp", {.format = target_format::dcp}));
    REQUIRE(convert(*reader, folder / "hf", {.format = target_format::hf}));
    REQUIRE(convert(*reader, folder / "one.safetensors", {.format = target_format::safetensors}));
  }
  for (const fs::path& checkpoint : {folder / "dcp", folder / "hf", folder / "one.safetensors"}) {
    CHECK(findings(checkpoint).empty());
    std::vector<fs::path> files{checkpoint};
    if (fs::is_directory(checkpoint)) {
      files.clear();
      for (const auto& entry : fs::directory_iterator(checkpoint)) files.push_back(entry.path());
    }
    for (const fs::path& file : files) {
      const std::vector<std::byte> whole = bytes_of(file);
      const std::size_t step = runs_long() ? 1 : 5;
      for (std::size_t at = 0; at < whole.size(); at += step) {
        const auto put = [&](std::byte value) {
          std::fstream out(file, std::ios::binary | std::ios::in | std::ios::out);
          out.seekp(static_cast<std::streamoff>(at));
          out.put(static_cast<char>(value));
        };
        put(whole[at] ^ std::byte{1});
        INFO(file.string() << " byte " << at);
        CHECK_FALSE(findings(checkpoint).empty());
        put(whole[at]);
      }
    }
  }
  fs::remove_all(folder);
}
