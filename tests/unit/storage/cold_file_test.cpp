// SPDX-License-Identifier: Apache-2.0
// Tests reads of a file that is not in the page cache. Several threads read parts of all lengths, in sequence and at
// random, and get the file's bytes.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <dice.hpp>
#include <filesystem>
#include <fstream>
#include <random_seed.hpp>
#include <scratch_folder.hpp>
#include <span>
#include <string>
#include <thread>
#include <vector>

import shardmesh.storage;

using namespace shardmesh;
namespace fs = std::filesystem;

namespace {

constexpr std::int64_t mib = 1 << 20;

std::byte byte_at(std::int64_t offset) {
  const auto mixed = static_cast<std::uint64_t>(offset) * 0x9e3779b97f4a7c15ULL;
  return static_cast<std::byte>(mixed >> 56);
}

fs::path numbered_file(const fs::path& folder, std::int64_t length) {
  const fs::path file = folder / "numbered";
  std::string bytes(static_cast<std::size_t>(length), '\0');
  for (std::int64_t at = 0; at < length; ++at) bytes[static_cast<std::size_t>(at)] = static_cast<char>(byte_at(at));
  std::ofstream(file, std::ios::binary) << bytes;
  return file;
}

// Takes the file's pages out of the cache. Pages that the file system keeps there change no result of a test.
void evict(const fs::path& file) {
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  REQUIRE(fd >= 0);
  CHECK(::fsync(fd) == 0);
  CHECK(::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
  ::close(fd);
}

// The first offset at which a read of [offset, offset + length) differs from the file; -1 if there is none.
std::int64_t first_wrong(const byte_source& source, std::int64_t offset, std::int64_t length) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(length));
  if (!source.read(offset, bytes)) return offset;
  for (std::int64_t at = 0; at < length; ++at)
    if (bytes[static_cast<std::size_t>(at)] != byte_at(offset + at)) return offset + at;
  return -1;
}

}  // namespace

TEST_CASE("a file that is not in the page cache is read in sequence, at random, and as a whole with the right bytes") {
  INFO("SHARDMESH_SEED=" << random_seed::seed());
  const scratch_folder scratch;
  const std::int64_t length = 48 * mib + 1234;
  const fs::path file = numbered_file(scratch.path, length);
  file_pool pool;
  const auto source = pool.open(file).value();
  for (const std::int64_t part : {4 * mib + 1, std::int64_t{65536}, std::int64_t{300}}) {
    INFO("in parts of " << part);
    evict(file);
    const std::int64_t end = part < 1000 ? mib : length;
    for (std::int64_t at = 0; at < end; at += part)
      REQUIRE(first_wrong(*source, at, std::min(part, length - at)) == -1);
  }
  evict(file);
  CHECK(first_wrong(*source, 0, length) == -1);

  evict(file);
  std::vector<std::int64_t> wrong(3, -1);
  std::vector<std::thread> readers;
  for (std::size_t thread = 0; thread < wrong.size(); ++thread)
    readers.emplace_back([&, thread] {
      dice random(random_seed::seed() + thread);
      for (int round = 0; round < 60 && wrong[thread] == -1; ++round) {
        const std::int64_t offset = random.up_to(length), most = std::min<std::int64_t>(2 * mib, length - offset);
        wrong[thread] = first_wrong(*source, offset, random.up_to(most));
      }
    });
  for (std::thread& reader : readers) reader.join();
  CHECK(wrong == std::vector<std::int64_t>(3, -1));
}

TEST_CASE("a cold read past the end, and of a file that became shorter, are errors that name the file") {
  const scratch_folder scratch;
  const fs::path file = numbered_file(scratch.path, 4 * mib);
  file_pool pool;
  const auto source = pool.open(file).value();
  evict(file);
  std::vector<std::byte> bytes(static_cast<std::size_t>(mib));
  const auto past = source->read(4 * mib - 1000, bytes);
  REQUIRE(!past);
  CHECK(past.error().code == errc::out_of_bounds);
  CHECK(past.error().file == file);
  fs::resize_file(file, 3 * mib + 10);
  evict(file);
  const auto shorter = source->read(3 * mib, bytes);
  REQUIRE(!shorter);
  CHECK(shorter.error().code == errc::io);
  CHECK(shorter.error().file == file);
  CHECK(shorter.error().message == "became shorter while it was read");
}
