// SPDX-License-Identifier: Apache-2.0
// Tests how untrusted bytes are escaped for terminals and JSON, and how byte counts are written.
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

TEST_CASE("a name cannot hide characters or reorder the line that shows it") {
  for (const std::string hidden :
       {"\xc2\x80",     "\xc2\x9f",     "\xc2\xad",         "\xd8\x9c",        "\xe2\x80\x8b", "\xe2\x80\x8c",
        "\xe2\x80\x8d", "\xe2\x80\x8e", "\xe2\x80\x8f",     "\xe2\x80\xa8",    "\xe2\x80\xa9", "\xe2\x80\xaa",
        "\xe2\x80\xae", "\xe2\x81\xa0", "\xe2\x81\xa6",     "\xe2\x81\xa9",    "\xef\xbb\xbf", "\xef\xb8\x8f",
        "\xef\xbf\xbe", "\xe1\xa0\x8e", "\xf3\xa0\x80\x81", "\xf3\xa0\x87\xaf"}) {
    std::string spelled;
    for (const char c : hidden) {
      constexpr std::string_view digits = "0123456789abcdef";
      const auto byte = static_cast<unsigned char>(c);
      spelled += {'\\', 'x', digits[byte >> 4], digits[byte & 15]};
    }
    CHECK(escaped("a" + hidden + "b") == "a" + spelled + "b");
    CHECK(json_quoted(hidden).starts_with("\"\\u"));
  }
  // Neighbours of those characters, and common ones: accents, CJK, emoji, spaces, and private use.
  for (const std::string shown :
       {"\xc2\xa0", "\xc2\xac", "\xc2\xae", "\xe2\x80\x8a", "\xe2\x80\x90", "\xe2\x80\xa7", "\xe2\x80\xaf",
        "\xe2\x81\x9f", "\xe2\x81\xb0", "\xef\xbf\xbd", "\xe5\xb1\xa4", "\xf0\x9f\x98\x80", "\xee\x80\x80"}) {
    CHECK(escaped(shown) == shown);
    CHECK(json_quoted(shown) == "\"" + shown + "\"");
  }
}

TEST_CASE("what JSON escapes for terminals is the same character when it is read") {
  CHECK(json_quoted("\xc2\x9b") == R"("\u009b")");
  CHECK(json_quoted("\xe2\x80\xae") == R"("\u202e")");
  CHECK(json_quoted("\xf3\xa0\x80\x81") == R"("\udb40\udc01")");
}

TEST_CASE("every byte string has a JSON spelling of its own") {
  CHECK(json_quoted("a\"\\\n\x01") == R"("a\"\\\n\u0001")");
  CHECK(json_quoted("\xff") == R"("\udcff")");
  CHECK(json_quoted("\xed\xb2\x80") == R"("\udc80")");
  CHECK(json_quoted("\xf0\x9f\x98\x80") == "\"\xf0\x9f\x98\x80\"");
}

TEST_CASE("a long key is shortened in its middle, so that keys that differ at their ends stay different") {
  CHECK(shortened("model.weight", 12) == "model.weight");
  CHECK(shortened("model.layers.10.mlp.weight", 15) == "mode...p.weight");
  CHECK(shortened("model.layers.10.mlp.weight", 18) == "model...mlp.weight");
  CHECK(shortened(std::string(500, 'a') + ".bias", 20).ends_with("aaa.bias"));
  CHECK(shortened("model.weight", 11) == "mo...weight");
  CHECK(shortened("model.weight", 4) == "...t");
  CHECK(shortened("model.weight", 3) == "...");
  CHECK(shortened("model.weight", 1) == ".");
  CHECK(shortened("model.weight", 0).empty());
  CHECK(shortened("", 0).empty());
}

TEST_CASE("a shortened text counts characters, and cuts none of them") {
  const std::string letter = "\xc3\xa4", face = "\xf0\x9f\x98\x80";
  CHECK(shortened(letter + letter + letter + letter, 4) == letter + letter + letter + letter);
  const std::string text = face + letter + face + letter + face + letter + face + letter + face + letter;
  CHECK(shortened(text, 9) == face + letter + "..." + face + letter + face + letter);
  for (std::size_t most = 0; most < 12; ++most) CHECK(is_utf8(shortened(text, most)));
  // Stray bytes of a character: any text is safe, though only well-formed text is shortened as promised.
  for (std::size_t most = 0; most < 12; ++most)
    CHECK(shortened("\xa4\xa4" + text + "\xa4", most).size() <= 4 * text.size());
}

TEST_CASE("UTF-8 is checked by the standard's table") {
  CHECK(is_utf8("\xf0\x9f\x98\x80"));
  CHECK_FALSE(is_utf8("\xc0\xaf"));      // overlong
  CHECK_FALSE(is_utf8("\xed\xa0\x80"));  // surrogate
  CHECK_FALSE(is_utf8("\xf4\x90\x80\x80"));
  CHECK_FALSE(is_utf8("\xe2\x98"));
}

TEST_CASE("a text of Python is UTF-8 or has lone surrogates, wherever they are") {
  for (const std::string& before : {std::string(), std::string("abc"), std::string(17, 'x'), std::string("\xc3\xa9")})
    for (const std::string& after : {std::string(), std::string("abcdefghi")}) {
      CHECK(is_python_text(before + after));
      CHECK(is_python_text(before + "\xf0\x9f\x98\x80" + after));
      CHECK(is_python_text(before + "\xed\xa0\x80" + after));
      CHECK(is_python_text(before + "\xed\xbf\xbf\xed\xa0\x80" + after));
      for (const char* const wrong : {"\xff", "\x80", "\xc0\xaf", "\xf4\x90\x80\x80", "\xed\xa0", "\xed\xc0\x80"})
        CHECK_FALSE(is_python_text(before + wrong + after));
    }
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

TEST_CASE("amounts below 1024 bytes are told in bytes") {
  CHECK(human_bytes(1023) == "1023 bytes");
  CHECK(human_bytes(1024) == "1.0 KiB");
}
