// SPDX-License-Identifier: Apache-2.0
// Tests digests of known bytes; the expected values come from the algorithms' own documents.
#include <array>
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

TEST_CASE("the SHA-1 of a text is that of FIPS 180") {
  CHECK(sha1_hex(bytes_of("abc")) == "a9993e364706816aba3e25717850c26c9cd0d89d");
  CHECK(sha1_hex({}) == "da39a3ee5e6b4b0d3255bfef95601890afd80709");
}

TEST_CASE("HMAC-SHA256 of known keys and messages") {
  CHECK(hex_digits(hmac_sha256(bytes_of("Jefe"), bytes_of("what do ya want for nothing?"))) ==  // RFC 4231, case 2
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  CHECK(hex_digits(hmac_sha256({}, {})) == "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
}

TEST_CASE("wiped memory is zero") {
  std::array<std::byte, 4> bytes{std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}};
  wipe_memory(std::span(bytes).first(3));
  CHECK(bytes == std::array<std::byte, 4>{std::byte{0}, std::byte{0}, std::byte{0}, std::byte{4}});
  wipe_memory({});
}
