// SPDX-License-Identifier: Apache-2.0
// Tests the cache of objects of stores: what it saves, and what it survives.
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <random_seed.hpp>
#include <scratch_folder.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <memory_store.hpp>

import shardmesh.core;
import shardmesh.storage;

using namespace shardmesh;
namespace fs = std::filesystem;

namespace {

constexpr std::int64_t block = 1 << 20;

// A cache of this process in its lifetime.
struct cache_in {
  explicit cache_in(const fs::path& folder, std::int64_t most_bytes = std::int64_t{1} << 30) {
    REQUIRE(use_store_cache({.folder = folder, .most_bytes = most_bytes}));
  }
  ~cache_in() { static_cast<void>(use_store_cache({})); }
};

std::string random_text(std::size_t size, std::mt19937_64& random) {
  std::string made(size, '\0');
  for (char& c : made) c = static_cast<char>(random());
  return made;
}

// Opens the object again, and reads a part of it. Returns the text of the error if that fails.
std::string text_of(const std::string& url, std::int64_t offset, std::size_t size) {
  file_pool pool(1);
  const auto source = pool.open(url);
  if (!source) return to_string(source.error());
  std::string made(size, '\0');
  const auto done = (*source)->read(offset, std::as_writable_bytes(std::span(made)));
  return done ? made : to_string(done.error());
}

std::vector<fs::path> block_files(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file() && entry.path().filename() != ".lock") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

std::int64_t size_of(const fs::path& folder) {
  std::int64_t sum = 0;
  for (const fs::path& file : block_files(folder)) sum += static_cast<std::int64_t>(fs::file_size(file));
  return sum;
}

std::string content_of(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

void write_file(const fs::path& file, const std::string& content) {
  std::ofstream(file, std::ios::binary | std::ios::trunc) << content;
}

}  // namespace

TEST_CASE("an object is read from the store once, and later from the cache") {
  std::mt19937_64 random(1);
  const registered_store store("cached");
  const scratch_folder scratch;
  const std::string content = random_text(3 * block + 1000, random), url = store.url("bucket/object");
  store->add("bucket/object", content);
  CHECK(text_of(url, 0, content.size()) == content);
  CHECK(store->take_counts().reads == 1);
  const cache_in cache(scratch / "new" / "folder");
  for (int i = 0; i < 3; ++i) {
    CHECK(text_of(url, 0, content.size()) == content);
    const auto counts = store->take_counts();
    CHECK(counts.opens == 1);
    CHECK(counts.reads == (i == 0 ? 1 : 0));  // blocks that follow each other are one range
    CHECK(counts.bytes == (i == 0 ? static_cast<std::int64_t>(content.size()) : 0));
  }
  CHECK(block_files(scratch / "new" / "folder").size() == 4);
  CHECK(text_of(url, block - 10, 20) == content.substr(block - 10, 20));
  CHECK(store->take_counts().reads == 0);
}

TEST_CASE("any ranges of an object are right with a cache, and each block is read from the store once") {
  const std::uint64_t seed = random_seed::seed();
  INFO("SHARDMESH_SEED=" << seed);
  std::mt19937_64 random(seed);
  const registered_store store("cached-ranges");
  const scratch_folder scratch;
  const cache_in cache(scratch.path);
  const std::string content = random_text(5 * block + random() % block, random), url = store.url("bucket/object");
  store->add("bucket/object", content);
  file_pool pool(1);
  const auto source = pool.open(url).value();
  for (std::uint64_t round = 0; round < random_seed::rounds(20); ++round) {
    std::vector<std::string> parts;
    std::vector<std::int64_t> offsets;
    for (std::size_t i = 0; i < 1 + random() % 20; ++i) {
      const std::size_t offset = random() % content.size();
      const std::size_t most = random() % 4 == 0 ? content.size() : 5000;
      parts.emplace_back(std::min(most, random() % (content.size() - offset + 1)), '\0');
      offsets.push_back(static_cast<std::int64_t>(offset));
    }
    std::vector<source_range> ranges;
    for (std::size_t i = 0; i < parts.size(); ++i)
      ranges.push_back({offsets[i], std::as_writable_bytes(std::span(parts[i]))});
    REQUIRE(source->read_ranges(ranges));
    bool is_equal = true;
    for (std::size_t i = 0; i < parts.size(); ++i)
      is_equal &= parts[i] == content.substr(static_cast<std::size_t>(offsets[i]), parts[i].size());
    CHECK(is_equal);
  }
  CHECK(store->take_counts().bytes <= static_cast<std::int64_t>(content.size()));
}

TEST_CASE("an object that was replaced is read anew, and one without a version is not kept") {
  const registered_store store("cached-versions");
  const scratch_folder scratch;
  const cache_in cache(scratch.path);
  const std::string url = store.url("bucket/object");
  for (const std::string content : {"first content", "other content"}) {
    store->add("bucket/object", content);
    for (int i = 0; i < 2; ++i) CHECK(text_of(url, 0, content.size()) == content);
  }
  CHECK(store->take_counts().reads == 2);
  CHECK(block_files(scratch.path).size() == 2);
  store->states_versions = false;
  for (int i = 0; i < 2; ++i) CHECK(text_of(url, 0, 5) == "other");
  CHECK(store->take_counts().reads == 2);
  CHECK(block_files(scratch.path).size() == 2);
}

TEST_CASE("a damaged block is read again, whatever the damage") {
  std::mt19937_64 random(2);
  const registered_store store("cached-damage");
  const scratch_folder scratch;
  const cache_in cache(scratch.path);
  const std::string content = random_text(2 * block, random), url = store.url("bucket/object");
  store->add("bucket/object", content);
  CHECK(text_of(url, 0, content.size()) == content);
  const std::vector<fs::path> files = block_files(scratch.path);
  REQUIRE(files.size() == 2);
  const std::string first = content_of(files[0]), second = content_of(files[1]);
  std::vector<std::string> damaged{"", "short", first.substr(0, first.size() - 1), first + "x", second};
  for (const std::size_t at : {std::size_t{0}, std::size_t{20}, first.size() / 2, first.size() - 1}) {
    damaged.push_back(first);
    damaged.back()[at] = static_cast<char>(damaged.back()[at] ^ 1);
  }
  for (const std::string& one : damaged) {
    write_file(files[0], one);
    store->take_counts();
    CHECK(text_of(url, 0, content.size()) == content);
    CHECK(store->take_counts().bytes == block);
    CHECK(content_of(files[0]) == first);
  }
}

TEST_CASE("a block of another user is read from the store again") {
  std::mt19937_64 random(6);
  const registered_store store("cached-owner");
  const scratch_folder scratch;
  const cache_in cache(scratch.path);
  const std::string content = random_text(block + 5, random), url = store.url("bucket/object");
  store->add("bucket/object", content);
  CHECK(text_of(url, 0, content.size()) == content);
  for (const fs::path& file : block_files(scratch.path))
    if (::chown(file.c_str(), ::geteuid() + 1, static_cast<::gid_t>(-1)) != 0)
      SKIP("this process may not give a file to another user");
  store->take_counts();
  CHECK(text_of(url, 0, content.size()) == content);
  CHECK(store->take_counts().bytes == static_cast<std::int64_t>(content.size()));
  CHECK(text_of(url, 0, content.size()) == content);
  CHECK(store->take_counts().bytes == 0);  // the new blocks are this user's
}

TEST_CASE("a cache keeps to its size, and leaves other files alone") {
  std::mt19937_64 random(3);
  const registered_store store("cached-size");
  const scratch_folder scratch;
  constexpr std::int64_t most = 64 * block;
  write_file(scratch / "my-file-1", "mine");
  fs::create_directory(scratch / "aa");
  write_file(scratch / "aa" / "my-file-2", std::string(100 * block, 'x'));
  const cache_in cache(scratch.path, most);
  const std::string content = random_text(block, random);
  for (int i = 0; i < 150; ++i) {
    const std::string name = "bucket/object" + std::to_string(i);
    store->add(name, content);
    CHECK(text_of(store.url(name), 0, content.size()) == content);
    store->erase(name);
  }
  const std::int64_t own = 4 + 100 * block;
  CHECK(size_of(scratch.path) - own <= most);
  CHECK(size_of(scratch.path) - own >= most / 2);
  CHECK(content_of(scratch / "my-file-1") == "mine");
  CHECK(fs::file_size(scratch / "aa" / "my-file-2") == static_cast<std::uintmax_t>(100 * block));
}

TEST_CASE("threads share one cache") {
  std::mt19937_64 random(4);
  const registered_store store("cached-threads");
  const scratch_folder scratch;
  const cache_in cache(scratch.path, 64 * block);
  const std::string content = random_text(8 * block, random), url = store.url("bucket/object");
  store->add("bucket/object", content);
  const auto done = parallel_for(4, 32, [&](std::int64_t i) -> result<void> {
    const auto offset = static_cast<std::size_t>(i * 250'000 % (7 * block));
    if (text_of(url, static_cast<std::int64_t>(offset), block) == content.substr(offset, block)) return {};
    return fail(errc::io, "wrong bytes");
  });
  CHECK(done);
}

TEST_CASE("a URL is no folder of a cache") {
  const auto refused = use_store_cache({.folder = "s3://bucket/cache?Signature=hidden"});
  REQUIRE(!refused);
  CHECK(refused.error().code == errc::invalid_argument);
  CHECK(refused.error().message == "the cache's folder is a URL");
  CHECK(refused.error().file == "s3://bucket/cache");
  CHECK(refused.error().hint == "name a local folder");
}

TEST_CASE("a cache that cannot be made is an error, and one that cannot be written is none") {
  std::mt19937_64 random(5);
  const registered_store store("cached-errors");
  const scratch_folder scratch;
  write_file(scratch / "file", "");
  const auto in_file = use_store_cache({.folder = scratch / "file"});
  REQUIRE(!in_file);
  CHECK(in_file.error().code == errc::io);
  CHECK(in_file.error().file == (scratch / "file").string());
  const auto tiny = use_store_cache({.folder = scratch / "tiny", .most_bytes = block});
  REQUIRE(!tiny);
  CHECK(tiny.error().code == errc::invalid_argument);
  CHECK(!fs::exists(scratch / "tiny"));
  fs::create_directory(scratch / "open");
  REQUIRE(::chmod((scratch / "open").c_str(), 0777) == 0);
  const auto open_to_all = use_store_cache({.folder = scratch / "open"});
  REQUIRE(!open_to_all);
  CHECK(open_to_all.error().code == errc::unsafe_path);

  const cache_in cache(scratch / "gone");
  fs::remove_all(scratch / "gone");
  const std::string content = random_text(block + 5, random);
  store->add("bucket/object", content);
  for (int i = 0; i < 2; ++i) CHECK(text_of(store.url("bucket/object"), 0, content.size()) == content);
  CHECK(store->take_counts().bytes == 2 * static_cast<std::int64_t>(content.size()));
}

TEST_CASE("with a cache that cannot be written, a store sends only the bytes that are read") {
  std::mt19937_64 random(6);
  const registered_store store("cached-unwritable");
  const scratch_folder scratch;
  const cache_in cache(scratch / "gone");
  fs::remove_all(scratch / "gone");
  const std::string content = random_text(4 * block + 7, random), url = store.url("bucket/object");
  store->add("bucket/object", content);
  CHECK(text_of(url, 0, 10) == content.substr(0, 10));  // the process learns that it cannot keep the block
  CHECK(store->take_counts().bytes == block);
  CHECK(text_of(url, block - 10, 20) == content.substr(block - 10, 20));
  CHECK(store->take_counts().bytes == 20);
  CHECK(text_of(url, 5, 3 * block) == content.substr(5, 3 * block));
  const auto counts = store->take_counts();
  CHECK(counts.bytes == 3 * block);
  CHECK(counts.reads == 1);
}

TEST_CASE("a cache fills overlapping ranges of many blocks") {
  std::mt19937_64 random(7);
  const registered_store store("cached-overlap");
  const scratch_folder scratch;
  const cache_in cache(scratch.path);
  const std::string content = random_text(140 * block + 9, random), url = store.url("bucket/object");
  store->add("bucket/object", content);
  file_pool pool(1);
  const auto source = pool.open(url).value();
  std::string all(content.size(), '\0'), again(content.size() - 3, '\0');
  std::vector<source_range> ranges{{0, std::as_writable_bytes(std::span(all))},
                                   {3, std::as_writable_bytes(std::span(again))}};
  std::vector<std::string> small(140, std::string(2, '\0'));
  for (std::size_t i = 0; i < small.size(); ++i)
    ranges.push_back({static_cast<std::int64_t>(i + 1) * block - 1, std::as_writable_bytes(std::span(small[i]))});
  REQUIRE(source->read_ranges(ranges));
  CHECK(all == content);
  CHECK(again == content.substr(3));
  bool is_equal = true;
  for (std::size_t i = 0; i < small.size(); ++i)
    is_equal &= small[i] == content.substr((i + 1) * static_cast<std::size_t>(block) - 1, 2);
  CHECK(is_equal);
  CHECK(store->take_counts().bytes == static_cast<std::int64_t>(content.size()));
}
