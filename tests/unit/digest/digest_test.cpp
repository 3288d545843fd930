// SPDX-License-Identifier: Apache-2.0
// Tests digests of known bytes; the expected values come from the algorithms' own documents.
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
import shardmesh.digest;

using namespace shardmesh;

namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

}  // namespace

TEST_CASE("a digest is spelled with its high half first, and read again") {
  const digest128 digest{.low = 0x0123456789abcdef, .high = 0xfedcba9876543210};
  CHECK(to_hex(digest) == "fedcba98765432100123456789abcdef");
  CHECK(parse_digest("fedcba98765432100123456789abcdef") == digest);
}

TEST_CASE("only 32 lower-case digits are a digest") {
  CHECK_FALSE(parse_digest(""));
  CHECK_FALSE(parse_digest("fedcba98765432100123456789abcde"));
  CHECK_FALSE(parse_digest("fedcba98765432100123456789abcdef0"));
  CHECK_FALSE(parse_digest("FEDCBA98765432100123456789abcdef"));
  CHECK_FALSE(parse_digest("fedcba98765432100123456789abcdeg"));
}

TEST_CASE("bytes are two digits each, the high half first") {
  CHECK(hex_digits(std::string_view()) == "");
  CHECK(hex_digits(std::string_view("\0\x1f\xa0\xff", 4)) == "001fa0ff");
}

// FIPS 180-2 B.1; the check value of CRC-32/ISO-HDLC; xxhsum -H2 of empty input.
TEST_CASE("sums are those of the standards") {
  CHECK(sha256::hex_of(bytes_of("abc")) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(crc32_of(bytes_of("123456789")) == 0xcbf43926);
  CHECK(to_hex(xxh3({})) == "99aa06d3014798d86001c324468d497f");
}

TEST_CASE("a sum of pieces is that of the whole") {
  xxh3_stream pieces;
  pieces.update(bytes_of("1234"));
  pieces.update(bytes_of("56789"));
  CHECK(pieces.digest() == xxh3(bytes_of("123456789")));
  CHECK(crc32_of(bytes_of("56789"), crc32_of(bytes_of("1234"))) == crc32_of(bytes_of("123456789")));
}
