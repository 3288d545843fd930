// SPDX-License-Identifier: Apache-2.0
// Tests the description of GGUF files on bytes made by hand: what a valid one says, and each defect of a hostile one.
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <gguf_files.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>

import shardmesh.gguf;
import shardmesh.storage;

using namespace shardmesh;
namespace made = gguf_files;

namespace {

result<gguf::header> parsed(std::string_view bytes) {
  const memory_source source(std::as_bytes(std::span(bytes.data(), bytes.size())), "x.gguf");
  read_budget budget;
  return gguf::parse_header(source, budget);
}

// Parses a file that must be refused.
error refused(std::string_view bytes) {
  auto read = parsed(bytes);
  REQUIRE_FALSE(read);
  CHECK(read.error().file == "x.gguf");
  return std::move(read).error();
}
error refused(const made::file& file) {
  return refused(file.bytes());
}

// Two tensors and two values.
made::file small() {
  made::file file;
  file.value("general.architecture", made::string, made::text("llama"));
  file.value("llama.sizes", made::array_type, made::array(made::uint32, 2) + made::number(7U) + made::number(8U));
  file.tensor("a", {3, 2}, made::f32, 0).tensor("b", {32}, made::q8_0, 32);
  file.data = std::string(24 + 8 + 34, '\1');
  return file;
}

}  // namespace

TEST_CASE("a description lists values, and tensors with row-major shapes and absolute places") {
  for (const std::uint32_t version : {2U, 3U}) {
    made::file file = small();
    file.version = version;
    const auto read = parsed(file.bytes());
    INFO((read ? "" : to_string(read.error())));
    REQUIRE(read);
    CHECK(read->version == version);
    CHECK(read->alignment == 32);
    const auto begin = static_cast<std::int64_t>(file.bytes().size() - file.data.size());
    CHECK(read->data_begin == begin);
    REQUIRE(read->tensors.size() == 2);
    CHECK(read->tensors[0] == gguf::tensor_info{"a", made::f32, {2, 3}, begin, begin + 24});
    CHECK(read->tensors[1] == gguf::tensor_info{"b", made::q8_0, {32}, begin + 32, begin + 66});
    REQUIRE(read->metadata.size() == 2);
    CHECK(read->metadata[0].key == "general.architecture");
    CHECK(read->metadata[0].type == gguf::value_type::string);
    CHECK(read->metadata[1].type == gguf::value_type::array);
    CHECK(read->metadata[1].elements == gguf::value_type::uint32);
    CHECK(read->metadata[1].count == 2);
    CHECK(read->metadata[1].end - read->metadata[1].begin == 4 + 8 + 8);
  }
}

TEST_CASE("a file that ends anywhere before its last tensor does is refused") {
  const std::string bytes = small().bytes();
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    INFO(length);
    CHECK(refused(bytes.substr(0, length)).code == errc::bad_format);
  }
}

TEST_CASE("other magic numbers, versions, and byte orders are refused by name") {
  std::string bytes = small().bytes();
  CHECK(refused("GGML" + bytes.substr(4)).message == "is not a GGUF file");
  made::file file = small();
  for (const std::uint32_t version : {0U, 1U, 4U}) {
    file.version = version;
    const error why = refused(file);
    CHECK(why.code == errc::unsupported);
    CHECK(why.found == std::to_string(version));
  }
  file.version = 0x03000000;
  CHECK(refused(file).message == "is a big-endian GGUF file, which is not read");
}

TEST_CASE("counts beyond the file's size are refused before memory is allocated") {
  for (const std::uint64_t count : {std::uint64_t{1} << 20, ~std::uint64_t{0}}) {
    made::file file = small();
    file.tensor_count = count;
    CHECK(refused(file).message.find("the number of tensors") != std::string::npos);
    file = small();
    file.value_count = count;
    CHECK(refused(file).message.find("the number of metadata values") != std::string::npos);
    for (const std::uint32_t type : {made::uint8, made::string, made::array_type}) {
      file = small();
      file.value("long", made::array_type, made::array(type, count));
      const error why = refused(file);
      CHECK(why.key == "long");
      CHECK(why.message.find("the length of an array") != std::string::npos);
    }
    file = small();
    file.value("long", made::string, made::number(count));
    CHECK(refused(file).message.find("the length of a string") != std::string::npos);
  }
}

TEST_CASE("the alignment is a power of two from 8 to 2^31") {
  for (const std::uint32_t alignment : {8U, 64U, 4096U}) {
    made::file file = small();
    file.alignment = alignment;
    file.value("general.alignment", made::uint32, made::number(alignment));
    file.tensors.clear();
    file.tensor_count = 0;
    file.tensor("a", {6}, made::f32, 0);
    const auto read = parsed(file.bytes());
    REQUIRE(read);
    CHECK(read->alignment == alignment);
    CHECK(read->data_begin % alignment == 0);
  }
  for (const std::uint32_t alignment : {0U, 1U, 4U, 24U, 33U}) {
    made::file file = small();
    file.value("general.alignment", made::uint32, made::number(alignment));
    const error why = refused(file);
    CHECK(why.key == "general.alignment");
    CHECK(why.found == std::to_string(alignment));
  }
  made::file beyond = small();
  beyond.value("general.alignment", made::uint64, made::number(std::uint64_t{1} << 32));
  CHECK(refused(beyond).expected == "a power of two from 8 to 2147483648");
  CHECK(refused(beyond).found == "4294967296");
  made::file file = small();
  file.value("general.alignment", made::string, made::text("32"));
  CHECK(refused(file).key == "general.alignment");
}

TEST_CASE("tensors that leave the file, overlap, or are not aligned are refused by name") {
  made::file file = small();
  file.tensor("c", {1}, made::f32, 96);
  error why = refused(file);
  CHECK(why.key == "c");
  CHECK(why.message.find("leave the file") != std::string::npos);
  file = small();
  file.tensor("c", {1}, made::f32, 4);
  why = refused(file);
  CHECK(why.key == "c");
  CHECK(why.message == "its data is not aligned");
  CHECK(why.found == "4");
  file = small();
  file.tensor("c", {1}, made::i8, 32);
  why = refused(file);
  CHECK(why.message.find("overlaps") != std::string::npos);
  file = small();
  file.tensor("c", {2}, made::f32, std::uint64_t{1} << 63);
  CHECK(refused(file).message == "its data begins outside of the file");
}

TEST_CASE("shapes are checked before they size anything") {
  const auto with = [](const std::vector<std::uint64_t>& sizes, std::uint32_t type) {
    made::file file;
    file.tensor("t", sizes, type, 0);
    file.data = std::string(64, '\0');
    return refused(file);
  };
  CHECK(with({1, 1, 1, 1, 1}, made::f32).code == errc::rank_too_large);
  CHECK(with({std::uint64_t{1} << 63}, made::f32).code == errc::overflow);
  CHECK(with({std::uint64_t{1} << 32, std::uint64_t{1} << 32}, made::f32).code == errc::overflow);
  CHECK(with({std::uint64_t{1} << 40}, made::f32).message.find("leave the file") != std::string::npos);
  const error uneven = with({33}, made::q4_0);
  CHECK(uneven.message == "its rows are not whole blocks of Q4_0");
  CHECK(uneven.found == "33");
  CHECK(with({}, made::q8_0).message == "its rows are not whole blocks of Q8_0");
}

TEST_CASE("an empty tensor may lie at the end of the file") {
  made::file file;
  file.tensor("none", {0, 4}, made::f32, 0);
  const auto read = parsed(file.bytes());
  REQUIRE(read);
  CHECK(read->tensors[0].shape == extents{4, 0});
  CHECK(read->tensors[0].begin == read->tensors[0].end);
}

TEST_CASE("names are distinct among tensors, and among values") {
  made::file file = small();
  file.tensor("a", {1}, made::f32, 64);
  file.data += std::string(64, '\0');
  error why = refused(file);
  CHECK(why.code == errc::duplicate_key);
  CHECK(why.key == "a");
  file = small();
  file.value("llama.sizes", made::uint32, made::number(1U));
  why = refused(file);
  CHECK(why.code == errc::duplicate_key);
  CHECK(why.key == "llama.sizes");
}

TEST_CASE("unknown types of values and arrays that are nested too deep are refused by key") {
  made::file file = small();
  file.value("odd", 13, std::string(8, '\0'));
  error why = refused(file);
  CHECK(why.key == "odd");
  CHECK(why.found == "13");
  file = small();
  file.value("odd", made::array_type, made::array(99, 0));
  CHECK(refused(file).found == "99");
  std::string nested = made::array(made::uint8, 0);
  for (int level = 0; level < 14; ++level) nested = made::array(made::array_type, 1) + nested;
  file = small();
  file.value("deep", made::array_type, nested);
  CHECK(parsed(file.bytes()));
  for (int level = 0; level < 100; ++level) nested = made::array(made::array_type, 1) + nested;
  file = small();
  file.value("deep", made::array_type, nested);
  why = refused(file);
  CHECK(why.key == "deep");
  CHECK(why.message.find("nested too deep") != std::string::npos);
}

TEST_CASE("a tensor of an unknown type is listed, and its size is not checked") {
  made::file file = small();
  file.tensor("new", {5}, 1000, 96);
  file.data += std::string(32, '\0');
  const auto read = parsed(file.bytes());
  REQUIRE(read);
  CHECK(read->tensors[2].type == 1000);
  CHECK(read->tensors[2].begin == read->tensors[2].end);
}

TEST_CASE("a description that is longer than the limit is refused") {
  made::file file = small();
  file.value("long", made::string, made::text(std::string(100000, 'x')));
  const std::string bytes = file.bytes();
  const memory_source source(std::as_bytes(std::span(bytes)), "x.gguf");
  read_limits limits;
  limits.description_bytes = 50000;
  read_budget budget(limits);
  const auto read = gguf::parse_header(source, budget);
  REQUIRE_FALSE(read);
  CHECK(is_beyond_limit(read.error()));
}
