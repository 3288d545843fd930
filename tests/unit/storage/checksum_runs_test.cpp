// SPDX-License-Identifier: Apache-2.0
// Compares a folder with its record: small adjacent ranges are read together, and each problem names its own range.
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <scratch_folder.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

import shardmesh.digest;
import shardmesh.storage;

using namespace shardmesh;
namespace fs = std::filesystem;

namespace {

std::string digits_of(std::string_view text) {
  return to_hex(xxh3(std::as_bytes(std::span(text.data(), text.size()))));
}

// Two files of ranges of different lengths, with a gap after every tenth; the record lists the files in turn.
std::vector<checksum_range> write_files(const fs::path& folder) {
  std::vector<checksum_range> ranges;
  std::string contents[2];
  for (int i = 0; i < 200; ++i)
    for (int f = 0; f < 2; ++f) {
      const std::size_t length = i % 50 == 49 ? 40'000 : static_cast<std::size_t>(i * 7 % 900);
      const std::string text(length, static_cast<char>('a' + i % 26));
      ranges.push_back({f == 0 ? "one" : "two", std::ssize(contents[f]), std::ssize(text), digits_of(text)});
      contents[f] += text;
      if (i % 10 == 9 && i < 199) contents[f] += "gap";
    }
  for (int f = 0; f < 2; ++f) std::ofstream(folder / (f == 0 ? "one" : "two"), std::ios::binary) << contents[f];
  return ranges;
}

void flip(const fs::path& file, std::int64_t offset) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekp(offset);
  stream.put('#');
}

}  // namespace

TEST_CASE("a whole folder has no problem, and bytes between the ranges do not count") {
  const scratch_folder scratch;
  const std::vector<checksum_range> ranges = write_files(scratch.path);
  flip(scratch.path / "one", ranges[18].offset + ranges[18].length);  // in a gap
  file_pool pool;
  for (const int threads : {1, 3}) CHECK(check_checksums(scratch.path, ranges, pool, threads).empty());
}

TEST_CASE("a flipped byte is the problem of the one range that has it, in the order of the record") {
  const scratch_folder scratch;
  const std::vector<checksum_range> ranges = write_files(scratch.path);
  const std::vector<std::size_t> damaged{5, 6, 99, 150, 301, 399};  // 99 is a large range
  for (const std::size_t i : damaged) flip(scratch.path / ranges[i].file, ranges[i].offset + ranges[i].length - 1);
  file_pool pool;
  for (const int threads : {1, 3}) {
    const std::vector<error> problems = check_checksums(scratch.path, ranges, pool, threads);
    REQUIRE(problems.size() == damaged.size());
    for (std::size_t i = 0; i < damaged.size(); ++i) {
      const checksum_range& range = ranges[damaged[i]];
      CHECK(problems[i].code == errc::checksum_mismatch);
      CHECK(problems[i].file == (scratch.path / range.file).string());
      CHECK(problems[i].message == "bytes " + std::to_string(range.offset) + " to " +
                                       std::to_string(range.offset + range.length) + " differ from their checksum");
      CHECK(problems[i].expected == range.digits);
      CHECK(problems[i].hint == "restore the file from another copy");
    }
  }
  const std::vector<std::size_t> chosen{99, 4, 5};
  const std::vector<error> of_chosen = check_checksums(scratch.path, ranges, chosen, pool, 1);
  REQUIRE(of_chosen.size() == 2);
  CHECK(of_chosen[0].expected == ranges[99].digits);
  CHECK(of_chosen[1].expected == ranges[5].digits);
}

TEST_CASE("the problem of a range names the key of the range, whether it is read alone or in a run") {
  const scratch_folder scratch;
  const std::vector<checksum_range> ranges = write_files(scratch.path);
  const std::vector<std::size_t> damaged{5, 6, 99, 301}, chosen{301, 99, 6, 7, 5};
  for (const std::size_t i : damaged) flip(scratch.path / ranges[i].file, ranges[i].offset);
  file_pool pool;
  for (const int threads : {1, 3}) {
    const auto problems = check_checksums(scratch.path, ranges, chosen, pool, threads, [](std::size_t range) {
      return range == 6 ? std::string() : "key " + std::to_string(range);
    });
    std::vector<std::string> keys;
    for (const error& problem : problems) keys.push_back(problem.key);
    CHECK(keys == std::vector<std::string>{"key 301", "key 99", "", "key 5"});
  }
}
