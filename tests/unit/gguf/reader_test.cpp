// SPDX-License-Identifier: Apache-2.0
// Tests GGUF files as checkpoints: tensors of every type against the values of the Python package gguf
// (tests/oracle/make_gguf.py), boxes of them, metadata values as objects, and files in which something is not read.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <gguf_files.hpp>
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

import shardmesh.checkpoint;
import shardmesh.gguf;

using namespace shardmesh;
namespace fs = std::filesystem;
namespace made = gguf_files;

namespace {

const fs::path sample = fs::path(SHARDMESH_TEST_DATA) / "gguf" / "blocks.gguf";

std::string content(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

fs::path written(const scratch_folder& scratch, const made::file& file) {
  const std::string bytes = file.bytes();
  std::ofstream(scratch / "x.gguf", std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return scratch / "x.gguf";
}

std::unique_ptr<checkpoint_reader> opened(const fs::path& file) {
  auto reader = open_checkpoint(file);
  INFO((reader ? "" : to_string(reader.error())));
  REQUIRE(reader);
  return *std::move(reader);
}

std::string bytes_of(const host_tensor& tensor) {
  return {reinterpret_cast<const char*>(tensor.bytes().data()), tensor.bytes().size()};
}

std::string json_of(checkpoint_reader& reader, std::string_view key) {
  const auto& objects = reader.contents().objects;
  const auto found =
      std::find_if(objects.begin(), objects.end(), [&](const object_entry& one) { return one.key == key; });
  REQUIRE(found != objects.end());
  const auto value = reader.read_object(static_cast<std::size_t>(found - objects.begin()));
  INFO((value ? "" : to_string(value.error())));
  REQUIRE(value);
  return value->kind + " " + value->json;
}

}  // namespace

TEST_CASE("blocks of every type have the values that the package gguf gives them") {
  const auto reader = opened(sample);
  CHECK(reader->contents().format == checkpoint_format::gguf);
  CHECK(reader->contents().version == "3");
  const std::string expected = content(fs::path(SHARDMESH_TEST_DATA) / "gguf" / "blocks.f32");
  const std::vector<std::string> names{"q4_0", "q4_1", "q5_0",   "q5_1",   "q8_0",  "q2_k",  "q3_k",  "q4_k",
                                       "q5_k", "q6_k", "iq4_nl", "iq4_xs", "tq1_0", "tq2_0", "mxfp4", "nvfp4"};
  const std::size_t bytes = 2 * 256 * sizeof(float);
  REQUIRE(expected.size() == names.size() * bytes);
  for (std::size_t i = 0; i < names.size(); ++i) {
    INFO(names[i]);
    const tensor_entry* const entry = reader->contents().find(names[i]);
    REQUIRE(entry != nullptr);
    CHECK(entry->type == dtype::float32);
    CHECK(entry->shape == extents{2, 256});
    const auto loaded = load_tensor(*reader, names[i]);
    REQUIRE(loaded);
    CHECK(bytes_of(*loaded) == expected.substr(i * bytes, bytes));
  }
}

TEST_CASE("the transform of a tensor's place is the name of its blocks") {
  const auto reader = opened(sample);
  const catalog& contents = reader->contents();
  const auto transform_of = [&](std::string_view key) {
    const stored_range& place = contents.chunk_places[static_cast<std::size_t>(contents.find(key)->first_chunk)];
    return contents.transforms[static_cast<std::size_t>(place.transform)];
  };
  CHECK(transform_of("q4_k") == "Q4_K");
  CHECK(transform_of("numbers.q8_0") == "Q8_0");
  CHECK(transform_of("numbers").empty());
}

TEST_CASE("a box of a tensor of blocks has the same bits as in the whole tensor") {
  const auto reader = opened(sample);
  const std::uint64_t seed = random_seed::seed();
  INFO("SHARDMESH_SEED=" << seed);
  std::mt19937 dice(static_cast<std::uint32_t>(seed));
  const auto drawn = [&](std::int64_t below) { return static_cast<std::int64_t>(dice()) % below; };
  for (const char* key : {"q4_0", "q6_k", "tq1_0", "nvfp4", "numbers"}) {
    const host_tensor whole = load_tensor(*reader, key).value();
    const auto values = std::as_const(whole).values<float>();
    for (int round = 0; round < 40; ++round) {
      const std::int64_t row = drawn(2), rows = 1 + drawn(2 - row);
      const std::int64_t column = drawn(256), columns = 1 + drawn(256 - column);
      INFO(key << " rows " << row << " + " << rows << ", columns " << column << " + " << columns);
      const auto part = load_tensor(*reader, key, box{{row, column}, {rows, columns}});
      REQUIRE(part);
      std::vector<float> expected;
      for (std::int64_t r = row; r < row + rows; ++r)
        expected.insert(expected.end(), values.begin() + r * 256 + column, values.begin() + r * 256 + column + columns);
      const auto found = std::as_const(*part).values<float>();
      CHECK(std::memcmp(found.data(), expected.data(), expected.size() * sizeof(float)) == 0);
    }
  }
}

TEST_CASE("a tensor of many pieces is decoded as one") {
  // Block i has the scale i, so every element shows which block it comes from.
  constexpr std::uint64_t blocks = 5000;
  made::file file;
  file.tensor("t", {32 * blocks}, made::q8_0, 0);
  for (std::uint64_t i = 0; i < blocks; ++i) {
    // Powers of two as float16: 2^(i % 10).
    file.data += made::number(static_cast<std::uint16_t>((15 + i % 10) << 10));
    for (int e = 0; e < 32; ++e) file.data += static_cast<char>(e - 16);
  }
  const scratch_folder scratch;
  const auto reader = opened(written(scratch, file));
  const host_tensor loaded = load_tensor(*reader, "t").value();
  const auto values = std::as_const(loaded).values<float>();
  REQUIRE(values.size() == 32 * blocks);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float scale = static_cast<float>(1 << (i / 32 % 10));
    wrong += values[i] != scale * (static_cast<float>(i % 32) - 16);
  }
  CHECK(wrong == 0);
}

TEST_CASE("tensors of plain types are read as they are, and scalars have no dimensions") {
  made::file file;
  file.tensor("half", {2}, made::f16, 0).tensor("scalar", {}, made::f32, 32).tensor("bytes", {3, 1, 2}, made::i8, 64);
  file.tensor("empty", {0}, made::f32, 96);
  file.data = made::number(std::uint16_t{0x3C00}) + made::number(std::uint16_t{0xC000}) + std::string(28, '\0');
  file.data += made::number(2.5F) + std::string(28, '\0') + "abcdef" + std::string(26, '\0');
  const scratch_folder scratch;
  const auto reader = opened(written(scratch, file));
  CHECK(reader->problems().empty());
  const host_tensor half = load_tensor(*reader, "half").value();
  CHECK(half.type() == dtype::float16);
  CHECK(bytes_of(half) == file.data.substr(0, 4));
  const host_tensor scalar = load_tensor(*reader, "scalar").value();
  CHECK(scalar.sizes() == extents{});
  CHECK(std::as_const(scalar).values<float>()[0] == 2.5F);
  const host_tensor bytes = load_tensor(*reader, "bytes").value();
  CHECK(bytes.type() == dtype::int8);
  CHECK(bytes.sizes() == extents{2, 1, 3});
  CHECK(bytes_of(bytes) == "abcdef");
  CHECK(load_tensor(*reader, "empty").value().sizes() == extents{0});
}

TEST_CASE("metadata values are objects with Python's types") {
  const auto reader = opened(sample);
  CHECK(json_of(*reader, "general.architecture") == "str \"llama\"");
  CHECK(json_of(*reader, "test.uint8") == "int 200");
  CHECK(json_of(*reader, "test.int16") == "int -30000");
  CHECK(json_of(*reader, "test.uint64") == "int {\"$int\":\"18446744073709551615\"}");
  CHECK(json_of(*reader, "test.float64") == "float {\"$float\":\"0x1.999999999999ap-4\"}");
  CHECK(json_of(*reader, "test.bool") == "bool true");
  CHECK(json_of(*reader, "test.integers") == "list [1,-2,3]");
  CHECK(json_of(*reader, "test.booleans") == "list [true,false]");
  CHECK(json_of(*reader, "test.bytes") == "list [1,2,255]");
  CHECK(json_of(*reader, "test.strings") == "list [\"<s>\",\"\",\"▁the\",\"\\\\\"]");
  for (std::size_t i = 0; i < reader->contents().objects.size(); ++i) CHECK(reader->object_archive(i));
}

TEST_CASE("strings that are not UTF-8 are bytes, and a boolean of another value is an error") {
  made::file file;
  file.value("raw", made::string, made::text("\xff\x01"));
  file.value("mixed", made::array_type, made::array(made::string, 2) + made::text("a") + made::text("\xfe"));
  file.value("odd", made::boolean, "\2");
  file.value("nested", made::array_type,
             made::array(made::array_type, 2) + made::array(made::uint8, 1) + "\7" + made::array(made::uint8, 0));
  const scratch_folder scratch;
  const auto reader = opened(written(scratch, file));
  CHECK(json_of(*reader, "raw") == "bytes {\"$bytes\":\"ff01\"}");
  CHECK(json_of(*reader, "mixed") == "list [\"a\",{\"$bytes\":\"fe\"}]");
  CHECK(json_of(*reader, "nested") == "list [[7],[]]");
  const auto odd = reader->read_object(2);
  REQUIRE_FALSE(odd);
  CHECK(odd.error().key == "odd");
  CHECK(odd.error().found == "2");
}

TEST_CASE("a tensor that cannot be decoded is named when it is read, and the others are read") {
  const auto reader = opened(sample);
  CHECK(reader->problems().empty());
  const auto refused = load_tensor(*reader, "opaque");
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::unsupported);
  CHECK(to_string(refused.error()).find("opaque") != std::string::npos);
  CHECK(to_string(refused.error()).find("IQ2_XXS") != std::string::npos);
}

TEST_CASE("a tensor of an unknown type is a problem, and the others are read") {
  made::file file;
  file.tensor("new", {4}, 1000, 0).tensor("old", {4}, made::i8, 32);
  file.data = std::string(32, '\0') + "abcd";
  const scratch_folder scratch;
  const auto reader = opened(written(scratch, file));
  REQUIRE(reader->problems().size() == 1);
  CHECK(reader->problems()[0].key == "new");
  CHECK(reader->problems()[0].found == "number 1000");
  CHECK(bytes_of(load_tensor(*reader, "old").value()) == "abcd");
}

TEST_CASE("one file of a model in several is a warning") {
  made::file file;
  file.value("split.count", made::uint32, made::number(3U));
  const scratch_folder scratch;
  const auto reader = opened(written(scratch, file));
  REQUIRE(reader->warnings().size() == 1);
  CHECK(reader->warnings()[0].found == "3");
}

TEST_CASE("a file is recognised by its content, and the suffix promises the format") {
  const scratch_folder scratch;
  fs::copy_file(sample, scratch / "model.bin");
  CHECK(opened(scratch / "model.bin")->contents().format == checkpoint_format::gguf);
  std::ofstream(scratch / "damaged.gguf") << "not a model";
  const auto damaged = open_checkpoint(scratch / "damaged.gguf");
  REQUIRE_FALSE(damaged);
  CHECK(damaged.error().message == "is not a GGUF file");
}
