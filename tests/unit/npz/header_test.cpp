// SPDX-License-Identifier: Apache-2.0
// Tests the headers of .npy arrays: every type, versions, spellings, and malformed texts.
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <npz_files.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

import shardmesh.core;
import shardmesh.npz;

using namespace shardmesh;
namespace made = npz_files;

namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

npz::array_header parsed(const std::string& header) {
  const auto read = npz::parse_array_header(bytes_of(header));
  INFO((read ? "" : to_string(read.error())));
  REQUIRE(read);
  return *read;
}

error refused(const std::string& header) {
  const auto read = npz::parse_array_header(bytes_of(header));
  REQUIRE_FALSE(read);
  return read.error();
}

}  // namespace

TEST_CASE("each of NumPy's types of numbers is a dtype, in either byte order") {
  const std::vector<std::pair<std::string, dtype>> types{
      {"b1", dtype::boolean},   {"u1", dtype::uint8},      {"i1", dtype::int8},    {"u2", dtype::uint16},
      {"i2", dtype::int16},     {"u4", dtype::uint32},     {"i4", dtype::int32},   {"u8", dtype::uint64},
      {"i8", dtype::int64},     {"f2", dtype::float16},    {"f4", dtype::float32}, {"f8", dtype::float64},
      {"c8", dtype::complex64}, {"c16", dtype::complex128}};
  for (const auto& [code, type] : types)
    for (const char order : {'<', '>', '|', '='}) {
      INFO(order << code);
      const std::string text = made::header(made::dict(order + code, "(2, 3)"));
      const npz::array_header header = parsed(text);
      CHECK(header.type == type);
      CHECK(header.is_big_endian == (order == '>' && item_bytes(type) > 1));
      CHECK_FALSE(header.is_fortran);
      CHECK(header.shape == extents{2, 3});
      CHECK(header.data_begin == static_cast<std::int64_t>(text.size()));
      CHECK(header.data_bytes == 6 * item_bytes(type));
      CHECK(header.crc32 == made::crc32(text));
    }
}

TEST_CASE("a written header is read back, and is the one that NumPy writes") {
  CHECK(npz::format_array_header(dtype::float32, {3, 4}) ==
        std::string("\x93NUMPY\x01\x00v\x00", 10) + "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }" +
            std::string(58, ' ') + "\n");
  for (const extents& shape : {extents{}, extents{7}, extents{0, 5}, extents{1, 2, 3, 4}}) {
    const npz::array_header header = parsed(npz::format_array_header(dtype::int16, shape));
    CHECK(header.shape == shape);
    CHECK(header.type == dtype::int16);
    CHECK(header.data_begin % 64 == 0);
  }
}

TEST_CASE("types that shardmesh lacks have a description, and no dtype") {
  const std::vector<std::pair<std::string, std::string>> types{
      {"|O", "Python objects"}, {"|V2", "raw bytes"},           {"<U5", "texts"}, {"|S3", "texts"},
      {"<M8[D]", "dates"},      {"<f16", "extended precision"}, {"?", "unknown"}, {"", "unknown"},
      {"float32", "unknown"},   {"complex64", "unknown"}};
  for (const auto& [descr, kind] : types) {
    INFO(descr);
    const npz::array_header header = parsed(made::header(made::dict(descr, "(2,)")));
    CHECK(header.type == dtype::undefined);
    CHECK(header.descr == descr);
    CHECK(header.data_bytes == 0);
    CHECK(npz::kind_of(header).find(kind) != std::string::npos);
  }
  const npz::array_header records = parsed(
      made::header("{'descr': [('a)', '<f4'), ('b', [('c', '<i2', (2,))])], 'fortran_order': False, 'shape': (), }"));
  CHECK(records.descr == "[('a)', '<f4'), ('b', [('c', '<i2', (2,))])]");
  CHECK(npz::kind_of(records) == "NumPy array of records");
}

TEST_CASE("the versions and spellings of NumPy's writers are accepted") {
  const std::string dict = made::dict("<f4", "(2L, 3L)", true);
  for (const int version : {1, 2, 3}) CHECK(parsed(made::header(dict, version)).shape == extents{2, 3});
  CHECK(parsed(made::header(dict)).is_fortran);
  CHECK(parsed(made::header("{\"shape\":(1,),\"fortran_order\":False,\"descr\":\"<f4\"}")).shape == extents{1});
  CHECK(parsed(made::header(made::dict("<f4", "()"))).data_bytes == 4);
  CHECK(parsed(made::header(made::dict("<f4", "(9223372036854775807, 0)"))).data_bytes == 0);
}

TEST_CASE("a malformed header is refused, and the message says where") {
  const auto message = [](std::string_view dict) { return to_string(refused(made::header(dict))); };
  const std::string begin = "malformed header of a NumPy array: ";
  CHECK(message("[]") == begin + "it is not a dict of plain values: expected '{' at character 0, found '['");
  CHECK(message("{'descr': '<f4', 'shape': ()}") == begin + "it lacks \"descr\", \"fortran_order\", or \"shape\"");
  CHECK(message("{'descr': '<f4', 'descr': '<f4'}") == begin + "the key \"descr\" is there twice");
  CHECK(message("{'x': 1}") == begin + "the key \"x\" is unknown");
  CHECK(message("{'descr': f()}") == begin + "\"descr\" is not a text");
  CHECK(message("{'descr': '<f4") == begin + "\"descr\" has no end");
  CHECK(message("{'descr': [('a'") == begin + "\"descr\" has no end");
  CHECK(message("{'fortran_order': 1}") == begin + "\"fortran_order\" is neither True nor False");
  CHECK(message("{'shape': (-1,)}") == begin + "\"shape\" is not a tuple of sizes");
  CHECK(message(made::dict("<f4", "(1,)") + " x") == begin + "bytes follow the dict");
}

TEST_CASE("sizes that do not fit, and too many dimensions, are refused") {
  CHECK(refused(made::header(made::dict("<f4", "(9223372036854775808,)"))).code == errc::overflow);
  CHECK(refused(made::header(made::dict("<f4", "(9223372036854775807,)"))).code == errc::overflow);
  CHECK(refused(made::header(made::dict("<f4", "(4294967296, 4294967296)"))).code == errc::overflow);
  std::string shape = "(";
  for (int d = 0; d < 17; ++d) shape += "1,";
  CHECK(refused(made::header(made::dict("<f4", shape + ")"))).code == errc::rank_too_large);
}

TEST_CASE("bytes that are no array, are cut off, or have another version are refused") {
  const std::string whole = made::header(made::dict("<f4", "(1,)"));
  for (std::size_t length = 0; length < whole.size(); ++length)
    CHECK(refused(whole.substr(0, length)).code == errc::bad_format);
  CHECK(refused(made::header(made::dict("<f4", "(1,)"), 4)).code == errc::unsupported);
  const std::string huge = std::string("\x93NUMPY\x02\x00", 8) + made::number(std::uint32_t{0xffffffff});
  CHECK(to_string(npz::header_bytes_of(bytes_of(huge)).error()) ==
        "malformed header of a NumPy array: it is too large: expected at most 1048576 bytes, found 4294967307");
}
