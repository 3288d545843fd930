// SPDX-License-Identifier: Apache-2.0
// Tests .npz archives, .npy files, and MLX folders as checkpoints: orders and byte orders, deflated records, checksums,
// arrays that are not read, and defects. tests/oracle/npz_files.py compares with NumPy.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <npz_files.hpp>
#include <random>
#include <random_seed.hpp>
#include <scratch_folder.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

import shardmesh.checkpoint;
import shardmesh.checkpoint_core;
import shardmesh.npz;

using namespace shardmesh;
namespace fs = std::filesystem;
namespace made = npz_files;

namespace {

fs::path written(const fs::path& file, const std::string& bytes) {
  std::ofstream(file, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return file;
}

std::unique_ptr<checkpoint_reader> opened(const fs::path& file) {
  auto reader = open_checkpoint(file);
  INFO((reader ? "" : to_string(reader.error())));
  REQUIRE(reader);
  return *std::move(reader);
}

std::string elements_of(checkpoint_reader& reader, std::string_view key) {
  const auto loaded = load_tensor(reader, key);
  INFO((loaded ? "" : to_string(loaded.error())));
  REQUIRE(loaded);
  return {reinterpret_cast<const char*>(loaded->bytes().data()), loaded->bytes().size()};
}

std::vector<std::string> keys_of(const checkpoint_reader& reader) {
  std::vector<std::string> keys;
  for (const tensor_entry& tensor : reader.contents().tensors) keys.push_back(tensor.key);
  return keys;
}

std::string message(const std::vector<error>& problems) {
  REQUIRE(problems.size() == 1);
  return to_string(problems.front());
}

std::vector<error> problems_of(checkpoint_reader& reader) {
  return verify(reader, {.threads = 1}).value().problems;
}

}  // namespace

TEST_CASE("arrays are tensors whose keys are the names of their records") {
  const scratch_folder scratch;
  const fs::path file =
      written(scratch / "x.npz",
              made::archive({{"b/w.npy", made::array("<i2", "(2, 3)", made::numbers<std::int16_t>({1, 2, 3, 4, 5, 6}))},
                             {"W.npy", made::array("|u1", "()", "\7")},
                             {"w.npy", made::array("<f4", "(0, 9)", "")}}));
  const auto reader = opened(file);
  CHECK(reader->contents().format == checkpoint_format::npz);
  CHECK(keys_of(*reader) == std::vector<std::string>{"b/w", "W", "w"});
  CHECK(reader->contents().find("b/w")->shape == extents{2, 3});
  CHECK(reader->contents().find("W")->shape == extents{});
  CHECK(elements_of(*reader, "b/w") == made::numbers<std::int16_t>({1, 2, 3, 4, 5, 6}));
  CHECK(elements_of(*reader, "W") == "\7");
  CHECK(elements_of(*reader, "w").empty());
  CHECK(problems_of(*reader).empty());
  CHECK(reader->warnings().empty());
}

TEST_CASE("the content of a file decides, and an archive without arrays has no tensors") {
  const scratch_folder scratch;
  const std::string array = made::array("|u1", "(1,)", "\7");
  CHECK(keys_of(*opened(written(scratch / "model.bin", made::archive({{"a.npy", array}})))) ==
        std::vector<std::string>{"a"});
  CHECK(keys_of(*opened(written(scratch / "array", array))) == std::vector<std::string>{"tensor"});
  CHECK(keys_of(*opened(written(scratch / "empty.npz", made::archive({})))).empty());
  CHECK(open_checkpoint(written(scratch / "text.npz", "text")).error().code == errc::bad_format);
}

TEST_CASE("boxes of arrays in every order, byte order, and compression have the elements of a model") {
  const std::uint64_t seed = random_seed::seed();
  INFO("SHARDMESH_SEED=" << seed);
  std::mt19937_64 dice(seed);
  const auto drawn = [&](std::int64_t most) {
    return static_cast<std::int64_t>(dice() % static_cast<std::uint64_t>(most));
  };
  const scratch_folder scratch;
  for (std::uint64_t round = 0; round < random_seed::rounds(20); ++round) {
    const std::int64_t rows = 1 + drawn(70), columns = 1 + drawn(900);
    const bool is_fortran = drawn(2) == 0, is_big = drawn(2) == 0, is_deflated = drawn(2) == 0;
    INFO(rows << " x " << columns << (is_fortran ? " fortran" : "") << (is_big ? " big" : "")
              << (is_deflated ? " deflated" : ""));
    std::vector<std::uint32_t> model(static_cast<std::size_t>(rows * columns));
    for (std::uint32_t& value : model) value = static_cast<std::uint32_t>(dice());
    std::string stored;
    for (std::int64_t i = 0; i < rows * columns; ++i) {
      const std::int64_t row = is_fortran ? i % rows : i / columns, column = is_fortran ? i / rows : i % columns;
      std::string element = made::number(model[static_cast<std::size_t>(row * columns + column)]);
      if (is_big) std::reverse(element.begin(), element.end());
      stored += element;
    }
    const std::string shape = "(" + std::to_string(rows) + ", " + std::to_string(columns) + ")";
    const auto reader = opened(written(
        scratch / "x.npz",
        made::archive({{"a.npy", made::array(is_big ? ">u4" : "<u4", shape, stored, is_fortran), is_deflated}})));
    CHECK(problems_of(*reader).empty());
    CHECK(elements_of(*reader, "a") == made::numbers(model));
    const std::int64_t row = drawn(rows), height = 1 + drawn(rows - row);
    const std::int64_t column = drawn(columns), width = 1 + drawn(columns - column);
    std::vector<std::uint32_t> expected;
    for (std::int64_t r = row; r < row + height; ++r)
      for (std::int64_t c = column; c < column + width; ++c)
        expected.push_back(model[static_cast<std::size_t>(r * columns + c)]);
    const auto part = load_tensor(*reader, "a", box{{row, column}, {height, width}});
    REQUIRE(part);
    CHECK(std::memcmp(part->bytes().data(), expected.data(), expected.size() * sizeof(std::uint32_t)) == 0);
  }
}

TEST_CASE("a deflated array in Fortran order is rewritten in large pieces, because each of them decodes all of it") {
  const scratch_folder scratch;
  const std::string values = made::numbers<std::int16_t>({1, 2, 3, 4, 5, 6});
  const auto reader =
      opened(written(scratch / "x.npz", made::archive({{"c.npy", made::array("<i2", "(2, 3)", values), true},
                                                       {"f.npy", made::array("<i2", "(2, 3)", values, true), true},
                                                       {"stored.npy", made::array("<i2", "(2, 3)", values, true)}})));
  chunk_source source(*reader);
  const auto is_large = [&](std::string_view key) {
    return source.prefers_large_reads({0, reader->contents().find(key)->first_chunk});
  };
  CHECK_FALSE(is_large("c"));
  CHECK(is_large("f"));
  CHECK_FALSE(is_large("stored"));
}

TEST_CASE("verify and convert compare the CRC-32 of a record, header included") {
  const scratch_folder scratch;
  const std::string array = made::array("<u2", "(2, 3)", made::numbers<std::uint16_t>({1, 2, 3, 4, 5, 6}));
  for (const bool is_deflated : {false, true}) {
    const auto refuses = [&](const std::string& bytes) {
      const auto reader = opened(written(scratch / "x.npz", bytes));
      const std::vector<error> problems = problems_of(*reader);
      REQUIRE(problems.size() == 1);
      CHECK(problems.front().code == errc::checksum_mismatch);
      CHECK(problems.front().key == "a");
      const auto copied = convert(*reader, scratch / "out.safetensors", {});
      REQUIRE_FALSE(copied);
      CHECK(copied.error().code == errc::checksum_mismatch);
      CHECK_FALSE(fs::exists(scratch / "out.safetensors"));
    };
    refuses(made::archive({{"a.npy", array, is_deflated, 1}}));
    const std::string whole = made::archive({{"a.npy", array, is_deflated}});
    std::string other_shape = whole;
    other_shape.replace(other_shape.find("(2, 3)"), 6, "(3, 2)");
    refuses(other_shape);
    std::string other_element = whole;
    other_element[other_element.find(std::string("\5\0\6", 3)) + 2] ^= 1;
    refuses(other_element);
  }
}

TEST_CASE("arrays of Python objects and other types are listed, compared, and refused by name") {
  const scratch_folder scratch;
  const std::string pickle = "\x80\4K\1.";
  const auto reader = opened(written(scratch / "x.npz", made::archive({{"o.npy", made::array("|O", "()", pickle)},
                                                                       {"v.npy", made::array("|V2", "(1,)", "ab")},
                                                                       {"w.npy", made::array("|u1", "(1,)", "\7")}})));
  CHECK(keys_of(*reader) == std::vector<std::string>{"o", "v", "w"});
  CHECK(reader->contents().find("o")->opaque_type == "numpy.dtype(|O)");
  CHECK(reader->contents().find("v")->chunk_count == 0);
  CHECK(problems_of(*reader).empty());
  CHECK_FALSE(load_tensor(*reader, "o"));
  const auto refused = convert(*reader, scratch / "out.safetensors", {});
  REQUIRE_FALSE(refused);
  REQUIRE(refused.error().problems().size() == 2);
  CHECK(to_string(refused.error().problems()[0])
            .find("o: a NumPy array of Python objects (a pickle, which is never "
                  "executed) cannot be written") != std::string::npos);
  CHECK(refused.error().problems()[1].key == "v");
  const auto skipped = convert(*reader, scratch / "out.safetensors", {.skip_unsupported = true});
  REQUIRE(skipped);
  CHECK(skipped->tensors == 1);
  CHECK(skipped->skipped_tensors == 2);

  const auto other = opened(written(scratch / "y.npz", made::archive({{"o.npy", made::array("|O", "()", "\x80\4K\2.")},
                                                                      {"v.npy", made::array("|V2", "(1,)", "ab")},
                                                                      {"w.npy", made::array("|u1", "(1,)", "\7")}})));
  const auto same = reader->content_of({true, 1}), mine = reader->content_of({true, 0});
  CHECK(same.value() == other->content_of({true, 1}).value());
  CHECK(mine.value() != other->content_of({true, 0}).value());
}

TEST_CASE("the checksum of an array that is not read is compared") {
  const scratch_folder scratch;
  const auto reader =
      opened(written(scratch / "x.npz", made::archive({{"v.npy", made::array("|V2", "(1,)", "ab"), false, 1}})));
  CHECK(message(problems_of(*reader)).find("v: the array's record differs from its CRC-32") != std::string::npos);
}

TEST_CASE("a defect of one array is a problem that names it, and leaves the others readable") {
  const scratch_folder scratch;
  const std::string good = made::array("|u1", "(1,)", "\7");
  const auto problem_with = [&](const made::record& bad) {
    const auto reader = opened(written(scratch / "x.npz", made::archive({{"good.npy", good}, bad})));
    CHECK(elements_of(*reader, "good") == "\7");
    CHECK(keys_of(*reader) == std::vector<std::string>{"good"});
    REQUIRE(reader->problems().size() == 1);
    CHECK(reader->problems().front().key == "bad");
    return reader->problems().front();
  };
  CHECK(problem_with({"bad.npy", made::array("<f4", "(2,)", "1234567")}).code == errc::bad_format);
  CHECK(problem_with({"bad.npy", made::array("<f4", "(2,)", "1234567"), true}).code == errc::bad_format);
  CHECK(problem_with({"bad.npy", "no array"}).code == errc::bad_format);
  CHECK(problem_with({"bad.npy", ""}).code == errc::bad_format);
  CHECK(problem_with({"bad.npy", made::array("<f4", "(9223372036854775807,)", "")}).code == errc::overflow);
  CHECK(problem_with({"bad.npy", good, false, 0, 12}).code == errc::unsupported);
}

TEST_CASE("records that are no arrays, and bytes behind an array, are named in warnings") {
  const scratch_folder scratch;
  const auto reader = opened(written(
      scratch / "x.npz",
      made::archive({{"a.npy", made::array("|u1", "(1,)", "\7more")}, {"folder/", ""}, {"notes.txt", "text"}})));
  REQUIRE(reader->warnings().size() == 2);
  CHECK(to_string(reader->warnings()[0]).find("a: 4 bytes behind the array's elements are not read") !=
        std::string::npos);
  CHECK(to_string(reader->warnings()[1]).find("has records that are not arrays, and are not read: notes.txt") !=
        std::string::npos);
  CHECK(problems_of(*reader).empty());
}

TEST_CASE("a record without the ending .npy is an array if its bytes begin as one, as in numpy.load") {
  const scratch_folder scratch;
  const std::string plain = made::array("|u1", "(1,)", "\7"), other = made::array("|u1", "(1,)", "\x08");
  const auto reader = opened(written(
      scratch / "x.npz", made::archive({{"a.npy", plain}, {"b", other}, {"c", other, true}, {"short", "\x93NUMP"}})));
  CHECK(keys_of(*reader) == std::vector<std::string>{"a", "b", "c"});
  for (const char* key : {"b", "c"}) CHECK(elements_of(*reader, key) == "\x08");
  CHECK(message(reader->warnings()).find("has records that are not arrays, and are not read: short") !=
        std::string::npos);
  CHECK(problems_of(*reader).empty());
  const auto twice = open_checkpoint(written(scratch / "y.npz", made::archive({{"a.npy", plain}, {"a", other}})));
  REQUIRE_FALSE(twice);
  CHECK(to_string(twice.error()).find("y.npz: a: two of its arrays and objects have one name") != std::string::npos);
}

TEST_CASE("an archive with two arrays of one name, or whose headers contradict the directory, is refused") {
  const scratch_folder scratch;
  const std::string array = made::array("|u1", "(1,)", "\7");
  const auto refused = [&](const std::string& bytes) {
    return to_string(open_checkpoint(written(scratch / "x.npz", bytes)).error());
  };
  CHECK(refused(made::archive({{"a.npy", array}, {"a.npy", array}})).find("two records are named \"a.npy\"") !=
        std::string::npos);
  std::string contradiction = made::archive({{"a.npy", array}});
  contradiction[contradiction.find("a.npy")] = 'b';
  CHECK(refused(contradiction)
            .find("x.npz: malformed ZIP archive: the local header of record \"a.npy\" does not match") !=
        std::string::npos);
}

TEST_CASE("an MLX folder is one checkpoint, in one file or in several") {
  const scratch_folder scratch;
  const auto file_of = [&](const std::string& name, const std::string& key) {
    written(scratch / name, made::archive({{key + ".npy", made::array("|u1", "(1,)", "\7")}}));
  };
  file_of("weights.00.npz", "a");
  file_of("weights.01.npz", "b.scales");
  const auto both = opened(scratch.path);
  CHECK(both->contents().format == checkpoint_format::npz);
  CHECK(keys_of(*both) == std::vector<std::string>{"a", "b.scales"});
  CHECK(elements_of(*both, "b.scales") == "\7");

  file_of("weights.03.npz", "d");
  CHECK(to_string(open_checkpoint(scratch.path).error()).find("weights.02.npz is missing") != std::string::npos);
  fs::remove(scratch / "weights.03.npz");
  file_of("weights.01.npz", "a");
  CHECK(open_checkpoint(scratch.path).error().code == errc::duplicate_key);

  file_of("weights.npz", "whole");
  const auto whole = opened(scratch.path);
  CHECK(keys_of(*whole) == std::vector<std::string>{"whole"});
  CHECK(message(whole->warnings()).find("weights.00.npz, weights.01.npz") != std::string::npos);
}

TEST_CASE(
    "a name without the flag for UTF-8 is in code page 437, as numpy.load reads it, and keeps its text in a copy") {
  const scratch_folder scratch;
  std::string upper_half;
  for (int byte = 0x80; byte < 0x100; ++byte) upper_half += static_cast<char>(byte);
  // From Python: bytes(range(128, 256)).decode("cp437").
  const std::string expected(
      "ÇüéâäàåçêëèïîìÄÅÉæÆôöòûùÿÖÜ¢£¥₧ƒ"
      "áíóúñÑªº¿⌐¬½¼¡«»░▒▓│┤╡╢╖╕╣║╗╝╜╛┐"
      "└┴┬├─┼╞╟╚╔╩╦╠═╬╧╨╤╥╙╘╒╓╫╪┘┌█▄▌▐▀"
      "αßΓπΣσµτΦΘΩδ∞φε∩≡±≥≤⌠⌡÷≈°∙·√ⁿ²■\xc2\xa0");
  const auto array = made::array("|u1", "(1,)", "\7");
  const auto reader =
      opened(written(scratch / "names.npz", made::archive({{upper_half + ".npy", array},
                                                           {"plain.npy", array},
                                                           {"ol\x82.npy", array},
                                                           {"th\xc3\xa9.npy", array, false, 0, 0, 0x0800},
                                                           {"no\xc3\xa9.npy", array}})));
  // The bytes of "é" in UTF-8 are other letters without the flag.
  const std::vector<std::string> names{expected, "plain", "olé", "thé", "no├⌐"};
  CHECK(reader->problems().empty());
  CHECK(keys_of(*reader) == names);
  CHECK(elements_of(*reader, "olé") == "\7");
  const auto report = convert(*reader, scratch / "copy.npz", {.format = target_format::npz});
  INFO((report ? "" : to_string(report.error())));
  REQUIRE(report);
  CHECK(keys_of(*opened(scratch / "copy.npz")) == names);
}

TEST_CASE("a name with the flag for UTF-8 that is not UTF-8 is a problem of its array") {
  const scratch_folder scratch;
  const auto array = made::array("|u1", "(1,)", "\7");
  const auto reader = opened(
      written(scratch / "names.npz", made::archive({{"a.npy", array}, {"\xff.npy", array, false, 0, 0, 0x0800}})));
  CHECK(keys_of(*reader) == std::vector<std::string>{"a"});
  CHECK(message(reader->problems()).find("the name of an array is not UTF-8") != std::string::npos);
}
