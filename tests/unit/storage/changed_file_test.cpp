// SPDX-License-Identifier: Apache-2.0
// Tests a file that is written or replaced after it was opened: a read gives the opened file's bytes or an error.
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <scratch_folder.hpp>
#include <span>
#include <string>
#include <string_view>
#include <thread>

import shardmesh.storage;

using namespace shardmesh;
namespace fs = std::filesystem;

namespace {

void write(const fs::path& file, std::string_view text, bool at_end = false) {
  // Later than the last write by more than a tick of the system's clock.
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  std::ofstream(file, at_end ? std::ios::app : std::ios::trunc) << text;
}

// The first four bytes, or the error.
std::string first(const byte_source& source) {
  std::array<std::byte, 4> bytes{};
  if (const auto done = source.read(0, bytes); !done) {
    CHECK(done.error().code == errc::io);
    CHECK(done.error().file == source.name());
    CHECK(done.error().hint == (done.error().message.starts_with("changed") ? "open it again" : ""));
    return done.error().message;
  }
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

constexpr std::string_view changed = "changed after it was opened";

}  // namespace

TEST_CASE("a file that is written to after it was opened is an error that names it") {
  const scratch_folder scratch;
  file_pool pool;
  const fs::path file = scratch.path / "a";
  for (const std::string_view other : {"other bytes", "longer other bytes", "four"}) {
    INFO(other);
    write(file, "its content");
    const auto source = pool.open(file).value();
    CHECK(first(*source) == "its ");
    write(file, other);
    CHECK(first(*source) == changed);
    CHECK(first(*pool.open(file).value()) == other.substr(0, 4));
  }
  const auto source = pool.open(file).value();
  write(file, "more", true);
  CHECK(first(*source) == changed);
  write(file, "");
  CHECK(first(*source) == "became shorter while it was read");
}

TEST_CASE("a file that is replaced stays what it was while a descriptor holds it, and is an error afterwards") {
  const scratch_folder scratch;
  file_pool pool(1);
  write(scratch.path / "a", "old bytes");
  write(scratch.path / "new", "new bytes");
  write(scratch.path / "b", "beside");
  const auto source = pool.open(scratch.path / "a").value();
  fs::rename(scratch.path / "new", scratch.path / "a");
  CHECK(first(*source) == "old ");
  CHECK(first(*pool.open(scratch.path / "b").value()) == "besi");  // takes the pool's only descriptor
  CHECK(first(*source) == changed);
}

TEST_CASE("reading a file, and files beside it, is no change of it") {
  const scratch_folder scratch;
  file_pool pool(1);
  write(scratch.path / "a", "aaaa");
  write(scratch.path / "b", "bbbb");
  const auto a = pool.open(scratch.path / "a").value(), b = pool.open(scratch.path / "b").value();
  for (int i = 0; i < 3; ++i) {
    CHECK(first(*a) == "aaaa");
    CHECK(first(*b) == "bbbb");
    fs::permissions(scratch.path / "a", i % 2 == 0 ? fs::perms::owner_read : fs::perms::owner_all);
  }
}
