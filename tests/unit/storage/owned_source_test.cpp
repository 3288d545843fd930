// SPDX-License-Identifier: Apache-2.0
// Tests the source that owns its bytes: every range, reads past the end, and the lifetime of the bytes.
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

import shardmesh.storage;

using namespace shardmesh;

namespace {

std::vector<std::byte> numbered(std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i != count; ++i) bytes[i] = static_cast<std::byte>(i * 37 + 11);
  return bytes;
}

std::vector<std::byte> bytes_of(const byte_source& source) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(source.size_bytes()));
  REQUIRE(source.read(0, bytes));
  return bytes;
}

}  // namespace

TEST_CASE("a source that owns its bytes returns every range of them, and refuses every other range") {
  const std::vector<std::byte> bytes = numbered(9);
  const owned_source source(bytes, "some archive");
  CHECK(source.size_bytes() == 9);
  CHECK(source.name() == "some archive");
  CHECK(!source.plain_file());
  for (std::int64_t begin = -1; begin != 11; ++begin)
    for (std::int64_t length = 0; length != 11; ++length) {
      INFO("offset " << begin << ", length " << length);
      std::vector<std::byte> out(static_cast<std::size_t>(length));
      const auto done = source.read(begin, out);
      if (begin >= 0 && begin + length <= 9) {
        REQUIRE(done);
        CHECK(out == std::vector<std::byte>(bytes.begin() + begin, bytes.begin() + begin + length));
      } else {
        REQUIRE(!done);
        CHECK(done.error().code == errc::out_of_bounds);
        CHECK(done.error().file == "some archive");
      }
    }
}

TEST_CASE("a source that owns no bytes has the empty range alone") {
  const owned_source source(std::vector<std::byte>(), "nothing");
  CHECK(source.size_bytes() == 0);
  CHECK(source.read(0, {}));
  std::byte one{};
  CHECK(!source.read(0, std::span(&one, 1)));
}

TEST_CASE("the bytes of a source live as long as its last copy") {
  auto shared = std::make_shared<const std::vector<std::byte>>(numbered(100'000));
  const std::weak_ptr<const std::vector<std::byte>> watched = shared;
  std::optional<owned_source> first(std::in_place, std::move(shared), "shared");
  std::optional<owned_source> second(*first);
  first.reset();
  CHECK(bytes_of(*second) == numbered(100'000));
  CHECK(!watched.expired());
  second.reset();
  CHECK(watched.expired());
}
