// SPDX-License-Identifier: Apache-2.0
// Text from untrusted bytes for terminals and JSON, and amounts of bytes.
#include <catch2/catch_test_macros.hpp>

#include <optional>
#include <string>
#include <string_view>

import shardmesh.core;

using namespace shardmesh;

TEST_CASE("a terminal never sees a control byte of an untrusted name") {
  CHECK(escaped("a\x1b[31m\n\xff") == "a\\x1b[31m\\n\\xff");
  CHECK(escaped("h\xc3\xa9llo \xe2\x98\x83") == "h\xc3\xa9llo \xe2\x98\x83");
  CHECK(escaped("\xc2\x9b") == "\\xc2\\x9b");
}

TEST_CASE("every byte string has a JSON spelling of its own") {
  CHECK(json_quoted("a\"\\\n\x01") == R"("a\"\\\n\u0001")");
  CHECK(json_quoted("\xff") == R"("\udcff")");
  CHECK(json_quoted("\xed\xb2\x80") == R"("\udc80")");
  CHECK(json_quoted("\xf0\x9f\x98\x80") == "\"\xf0\x9f\x98\x80\"");
}

TEST_CASE("UTF-8 is checked by the standard's table") {
  CHECK(is_utf8("\xf0\x9f\x98\x80"));
  CHECK_FALSE(is_utf8("\xc0\xaf"));      // overlong
  CHECK_FALSE(is_utf8("\xed\xa0\x80"));  // surrogate
  CHECK_FALSE(is_utf8("\xf4\x90\x80\x80"));
  CHECK_FALSE(is_utf8("\xe2\x98"));
}

TEST_CASE("amounts of bytes are read in binary and decimal units") {
  CHECK(parse_bytes("64MiB") == 64 << 20);
  CHECK(parse_bytes("1.5K") == 1536);
  CHECK(parse_bytes("2GB") == 2000000000);
  CHECK_FALSE(parse_bytes("MiB"));
  CHECK_FALSE(parse_bytes("-1"));
  CHECK_FALSE(parse_bytes("1 GiB"));
  CHECK_FALSE(parse_bytes("99999999TiB"));
}
