// SPDX-License-Identifier: Apache-2.0
// Tests that the bytes on disk limit how long a file may be to be read whole. A file of a few kilobytes with a hole of
// gigabytes is refused before memory is allocated.
#include <catch2/catch_test_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <scratch_folder.hpp>
#include <string>
#include <vector>

import shardmesh.storage;

using namespace shardmesh;
namespace fs = std::filesystem;

namespace {

constexpr std::int64_t mib = 1 << 20, gib = 1 << 30;

// Data at both ends of a hole.
fs::path sparse_file(const fs::path& folder, std::int64_t length, std::size_t begin = 4096, std::size_t end = 0) {
  const fs::path file = folder / "sparse";
  std::ofstream(file, std::ios::binary) << std::string(begin, 'x');
  fs::resize_file(file, static_cast<std::uintmax_t>(length) - end);
  std::ofstream(file, std::ios::binary | std::ios::app) << std::string(end, 'y');
  return file;
}

bool has_holes(const byte_source& source) {
  return source.stored_bytes(0, source.size_bytes()) < source.size_bytes();
}

}  // namespace

TEST_CASE("only the bytes outside of holes count as stored, in a section, too") {
  const scratch_folder scratch;
  file_pool pool;
  const auto source = pool.open(sparse_file(scratch.path, gib, 1 << 16, 1 << 16)).value();
  if (!has_holes(*source)) SKIP("the file system of " << scratch.path << " has no holes");
  CHECK(source->stored_bytes(0, gib) < mib);
  CHECK(source->stored_bytes(0, gib) >= 2 << 16);
  CHECK(source->stored_bytes(0, 1 << 16) == 1 << 16);
  CHECK(source->stored_bytes(gib / 2, mib) == 0);
  CHECK(section_source(*source, gib / 2, mib).stored_bytes(0, mib) == 0);
  CHECK(section_source(*source, 0, gib).stored_bytes(100, 100) == 100);
}

TEST_CASE("a file without holes is stored whole, and so is memory") {
  const scratch_folder scratch;
  const fs::path file = scratch.path / "dense";
  std::ofstream(file, std::ios::binary) << std::string(3 << 20, 'x');
  file_pool pool;
  CHECK(pool.open(file).value()->stored_bytes(0, 3 << 20) == 3 << 20);
  const std::vector<std::byte> bytes(100);
  CHECK(memory_source(bytes, "memory").stored_bytes(0, 100) == 100);
  CHECK(read_file(file, 4 << 20).value().size() == 3 << 20);
}

TEST_CASE("a sparse file is not read whole, with an error that names it, its sizes and the way out") {
  const scratch_folder scratch;
  const fs::path file = sparse_file(scratch.path, gib);
  file_pool pool;
  if (!has_holes(*pool.open(file).value())) SKIP("the file system of " << scratch.path << " has no holes");
  const auto refused = read_file(file, gib);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::bad_format);
  CHECK(refused.error().file == file.string());
  CHECK(is_beyond_limit(refused.error()));
  CHECK(refused.error().found == std::to_string(gib));
  CHECK(refused.error().hint == "write the file without holes (cp --sparse=never), if you trust it");
  CHECK(refused.error().message.find("sparse") != std::string::npos);
  // A file longer than the limit is another error.
  const auto longer = read_file(file, mib);
  REQUIRE_FALSE(longer);
  CHECK(longer.error().code == errc::bad_format);
  CHECK(to_string(longer.error()) ==
        file.string() + ": is too large: expected at most 1048576 bytes, found 1073741824");
  // A sixty-fourth of the limit may be a hole; a higher limit allows more.
  CHECK(read_file(sparse_file(scratch.path, 15 * mib), gib));
  CHECK_FALSE(read_file(sparse_file(scratch.path, 17 * mib), gib));
  CHECK(read_file(sparse_file(scratch.path, 17 * mib), 2 * gib));
  // A hole may also have sixteen bytes for each stored byte.
  CHECK(read_file(sparse_file(scratch.path, 17 * mib, 1 << 17), gib));
}

TEST_CASE("a part of a file is read by the same rule, and never past its end") {
  const scratch_folder scratch;
  file_pool pool;
  const auto source = pool.open(sparse_file(scratch.path, gib, 1 << 20)).value();
  if (!has_holes(*source)) SKIP("the file system of " << scratch.path << " has no holes");
  CHECK(read_range(*source, 0, mib, gib).value() == std::vector(static_cast<std::size_t>(mib), std::byte{'x'}));
  CHECK_FALSE(read_range(*source, mib, 100 * mib, gib));
  CHECK(read_range(*source, gib - 10, 11, gib).error().code == errc::out_of_bounds);
  CHECK(read_range(*source, 0, 0, 0).value().empty());
}
