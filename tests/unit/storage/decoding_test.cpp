// SPDX-License-Identifier: Apache-2.0
// Tests decoded streams: gzip files of one and several members, damage, and the beginning of a stream.
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <new>
#include <npz_files.hpp>
#include <span>
#include <string>
#include <string_view>

import shardmesh.storage;

using namespace shardmesh;
namespace made = npz_files;

namespace {

// A member of a gzip file, in blocks without compression.
std::string member(std::string_view text) {
  return std::string("\x1f\x8b\x08\0\0\0\0\0\0\xff", 10) + made::deflated(text) + made::number(made::crc32(text)) +
         made::number(static_cast<std::uint32_t>(text.size()));
}

std::unique_ptr<byte_source> source_of(const std::string& bytes) {
  return std::make_unique<memory_source>(std::as_bytes(std::span(bytes)), "some.gz");
}

// A deflate stream of one repeated byte: literals of 9 bits each, then matches of 258 bytes in 13 bits each. The number
// of literals decides where in a byte the stream ends.
std::string repeated(int literals, int matches) {
  std::string stream;
  unsigned byte = 0;
  int filled = 0;
  const auto add = [&](unsigned bit) {
    byte |= bit << filled;
    if (++filled != 8) return;
    stream += static_cast<char>(byte);
    byte = 0;
    filled = 0;
  };
  const auto add_code = [&](unsigned code, int width) {
    while (width-- > 0) add(code >> width & 1U);
  };
  add_code(0b110, 3);  // the last block, with the fixed codes
  for (int i = 0; i < literals; ++i) add_code(0b111001000, 9);
  for (int i = 0; i < matches; ++i) add_code(0b1100010100000, 13);
  add_code(0, 7);
  if (filled != 0) stream += static_cast<char>(byte);
  return stream;
}

std::string text_of(const byte_source& source) {
  std::string text(static_cast<std::size_t>(source.size_bytes()), '\0');
  REQUIRE(source.read(0, std::as_writable_bytes(std::span(text))));
  return text;
}

// Fails once, after some further reads: with an error, or for want of memory.
class failing_source final : public byte_source {
 public:
  failing_source(const std::string& bytes, int& reads_left, bool lacks_memory)
      : memory_(std::as_bytes(std::span(bytes)), "some.gz"), reads_left_(reads_left), lacks_memory_(lacks_memory) {}
  std::int64_t size_bytes() const override { return memory_.size_bytes(); }
  std::string name() const override { return memory_.name(); }
  result<void> read(std::int64_t offset, std::span<std::byte> out) const override {
    if (reads_left_-- != 0) return memory_.read(offset, out);
    if (lacks_memory_) throw std::bad_alloc();
    return fail(errc::deadline_exceeded, "late").with_file(name());
  }

 private:
  memory_source memory_;
  int& reads_left_;
  bool lacks_memory_;
};

}  // namespace

TEST_CASE("after a read that failed, a decoded stream has the right bytes") {
  std::string text;
  for (int i = 0; i < 700'000; ++i) text += static_cast<char>(i % 251);
  const std::string encoded = member(text);
  for (const bool lacks_memory : {false, true}) {
    INFO(lacks_memory);
    int reads_left = -1;
    const auto source =
        open_decoding_source(std::make_unique<failing_source>(encoded, reads_left, lacks_memory), codec::gzip).value();
    int failed = 0;
    for (int reads = 0; reads < 12; ++reads) {
      std::string part(300'000, '\0');
      const auto out = std::as_writable_bytes(std::span(part));
      reads_left = reads;
      try {
        failed += source->read(200'000, out) ? 0 : 1;
      } catch (const std::bad_alloc&) {
        ++failed;
      }
      reads_left = -1;
      for (const std::int64_t offset : {200'000, 250'000, 150'000}) {
        REQUIRE(source->read(offset, out));
        CHECK(part == text.substr(static_cast<std::size_t>(offset), part.size()));
      }
    }
    CHECK(failed > 1);
  }
}

TEST_CASE("the members of a gzip file are one stream") {
  const std::string large(200'000, 'x');
  for (const std::string& bytes : {member(large), member("") + member(large), member(large) + member("")}) {
    const auto opened = open_decoding_source(source_of(bytes), codec::gzip);
    REQUIRE(opened);
    CHECK(text_of(**opened) == large);
  }
  const std::string both = member("first ") + member("second");
  CHECK(text_of(*open_decoding_source(source_of(both), codec::gzip).value()) == "first second");
}

TEST_CASE("a gzip file that is cut off, or differs from its checksum, is refused") {
  const std::string whole = member("text");
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const std::string cut = whole.substr(0, length);
    const auto opened = open_decoding_source(source_of(cut), codec::gzip);
    REQUIRE_FALSE(opened);
    CHECK(opened.error().code == errc::bad_format);
    CHECK(opened.error().file == "some.gz");
  }
  std::string changed = whole;
  changed[changed.find("text")] = 'T';
  CHECK(open_decoding_source(source_of(changed), codec::gzip).error().code == errc::bad_format);
}

TEST_CASE("a stream is decoded wholly when its last byte gives more output than a reader takes at a time") {
  for (int literals = 1; literals <= 8; ++literals)
    for (const int matches : {0, 254, 255, 256, 508, 509}) {
      INFO("literals " << literals << ", matches " << matches);
      const std::string encoded = repeated(literals, matches);
      const std::string text(static_cast<std::size_t>(literals + 258 * matches), '\xC8');
      const auto opened = open_decoding_source(source_of(encoded), codec::deflate);
      REQUIRE(opened);
      CHECK(text_of(**opened) == text);
      const auto begin = decode_beginning(*source_of(encoded), codec::deflate, std::ssize(text));
      REQUIRE(begin);
      CHECK(std::string_view(reinterpret_cast<const char*>(begin->data()), begin->size()) == text);
      const std::string cut = encoded.substr(0, encoded.size() - 1);
      CHECK(!open_decoding_source(source_of(cut), codec::deflate));
    }
}

TEST_CASE("the beginning of a stream is decoded without the rest, which may be damaged") {
  std::string text;
  for (int i = 0; i < 300'000; ++i) text += static_cast<char>(i % 251);
  std::string encoded = made::deflated(text);
  encoded.resize(encoded.size() - 10);
  const auto source = source_of(encoded);
  for (const std::int64_t count : {0, 1, 65'536, 200'000}) {
    const auto begin = decode_beginning(*source, codec::deflate, count);
    REQUIRE(begin);
    CHECK(std::string_view(reinterpret_cast<const char*>(begin->data()), begin->size()) ==
          text.substr(0, static_cast<std::size_t>(count)));
  }
  CHECK(decode_beginning(*source, codec::deflate, 300'000).error().code == errc::bad_format);
  const std::string short_stream = made::deflated("all");
  CHECK(decode_beginning(*source_of(short_stream), codec::deflate, 100).value().size() == 3);
}
