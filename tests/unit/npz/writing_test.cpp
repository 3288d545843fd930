// SPDX-License-Identifier: Apache-2.0
// Tests written .npz archives: their bytes, round trips with objects, and everything refused.
// tests/oracle/npz_files.py reads them with NumPy.
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <npz_files.hpp>
#include <scratch_folder.hpp>
#include <string>
#include <string_view>
#include <vector>

import shardmesh.checkpoint;
import shardmesh.npz;

using namespace shardmesh;
namespace fs = std::filesystem;
namespace made = npz_files;

namespace {

fs::path written(const fs::path& file, const std::string& bytes) {
  std::ofstream(file, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return file;
}

std::string content(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::unique_ptr<checkpoint_reader> opened(const fs::path& file) {
  auto reader = open_checkpoint(file);
  INFO((reader ? "" : to_string(reader.error())));
  REQUIRE(reader);
  return *std::move(reader);
}

std::string safetensors_of(std::string_view header, std::string_view data) {
  return made::number(static_cast<std::uint64_t>(header.size())) + std::string(header) + std::string(data);
}

}  // namespace

TEST_CASE("an archive is stored, aligned, in the order of the source, and passes verify") {
  const scratch_folder scratch;
  const auto source =
      opened(written(scratch / "in.npz",
                     made::archive({{"b.npy", made::array(">i2", "(2, 2)", std::string("\0\1\0\2\0\3\0\4", 8), true)},
                                    {"a/\xc3\xa9.npy", made::array("|b1", "()", "\1"), true, 0, 0, 0x0800},
                                    {"none.npy", made::array("<c8", "(0, 3)", "")}})));
  const auto report = convert(*source, scratch / "out.npz", {.format = target_format::npz});
  INFO((report ? "" : to_string(report.error())));
  REQUIRE(report);
  CHECK(report->tensors == 3);
  CHECK(report->bytes == 9);
  CHECK(report->files == 1);
  const auto copy = opened(scratch / "out.npz");
  CHECK(verify(*copy, {.threads = 1}).value().problems.empty());
  CHECK(copy->contents().tensors.size() == 3);
  CHECK(copy->contents().tensors[1].key == "a/\xc3\xa9");
  const std::string bytes = content(scratch / "out.npz");
  const std::size_t begin = bytes.find(made::header(made::dict("<i2", "(2, 2)") + std::string(20, ' ')).substr(0, 60));
  REQUIRE(begin != std::string::npos);
  CHECK(begin % 64 == 0);
  CHECK(bytes.substr(begin + 128, 8) == made::numbers<std::int16_t>({1, 3, 2, 4}));
}

TEST_CASE("objects travel in a record of their own") {
  const scratch_folder scratch;
  const fs::path sample = fs::path(SHARDMESH_TEST_DATA) / "golden" / "era_torch_2.15.0" / "checkpoint";
  const auto source = opened(sample);
  convert_options options{.format = target_format::npz};
  options.selection.cast.push_back(parse_cast_rule(".*=float32").value());  // NumPy has no bfloat16
  const auto report = convert(*source, scratch / "out.npz", options);
  INFO((report ? "" : to_string(report.error())));
  REQUIRE(report);
  CHECK(content(scratch / "out.npz").find("shardmesh.objects.json") != std::string::npos);
  const auto copy = opened(scratch / "out.npz");
  CHECK(verify(*copy, {.threads = 1}).value().problems.empty());
  REQUIRE(copy->contents().objects.size() == source->contents().objects.size());
  for (std::size_t i = 0; i < source->contents().objects.size(); ++i) {
    const auto before = source->read_object(i);
    const object_entry* const after = copy->contents().find_object(source->contents().objects[i].key);
    REQUIRE(after != nullptr);
    CHECK(after->where == source->contents().objects[i].where);
    const auto value = copy->read_object(static_cast<std::size_t>(after - copy->contents().objects.data()));
    CHECK(value.value().json == before.value().json);
  }
}

TEST_CASE("an empty checkpoint is an archive that is recognised without the suffix") {
  const scratch_folder scratch;
  const auto source = opened(written(scratch / "in.safetensors", safetensors_of("{}", "")));
  const auto report = convert(*source, scratch / "out", {.format = target_format::npz});
  INFO((report ? "" : to_string(report.error())));
  REQUIRE(report);
  CHECK(report->tensors == 0);
  CHECK(report->objects == 0);
  CHECK(content(scratch / "out").find("shardmesh.objects.json") != std::string::npos);
  const auto copy = opened(scratch / "out");
  CHECK(copy->contents().format == checkpoint_format::npz);
  CHECK(copy->contents().tensors.empty());
  CHECK(copy->contents().objects.empty());
  CHECK(verify(*copy, {.threads = 1}).value().problems.empty());
}

TEST_CASE("an error about the entry with the empty name shows that name") {
  const scratch_folder scratch;
  const auto source = opened(
      written(scratch / "in.safetensors",
              safetensors_of(R"({"":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", std::string("\1\2\3\4"))));
  REQUIRE(convert(*source, scratch / "out.npz", {.format = target_format::npz}));
  std::string bytes = content(scratch / "out.npz");
  bytes[bytes.find("\1\2\3\4")] = 9;
  const fs::path file = written(scratch / "out.npz", bytes);
  const auto damaged = opened(file);
  const std::string line = file.string() +
                           ": \"\": the tensor's bytes differ from their checksum in [0:1): expected crc32 b63cfbcd, "
                           "found 7388d322; restore the file from another copy";
  const auto problems = verify(*damaged, {.threads = 1}).value().problems;
  REQUIRE(problems.size() == 1);
  CHECK(to_string(problems[0]) == line);
  CHECK(problems[0].key.empty());
  const auto refused = convert(*damaged, scratch / "copy.npz", {.format = target_format::npz});
  REQUIRE_FALSE(refused);
  CHECK(to_string(refused.error()) == line);
}

TEST_CASE("a tensor whose dtype NumPy lacks is refused, with the remedy, or left out on request") {
  const scratch_folder scratch;
  const auto source = opened(
      written(scratch / "in.safetensors", safetensors_of(R"({"h":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]},)"
                                                         R"("q":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[2,4]},)"
                                                         R"("w":{"dtype":"U8","shape":[1],"data_offsets":[4,5]}})",
                                                         std::string("\x80\x3f\x38\x38\x07"))));
  const auto refused = convert(*source, scratch / "out.npz", {.format = target_format::npz});
  REQUIRE_FALSE(refused);
  REQUIRE(refused.error().problems().size() == 2);
  CHECK(to_string(refused.error().problems()[0]) ==
        "h: NumPy has no bfloat16; pass dtype float32 to cast it, or leave it out");
  CHECK(refused.error().problems()[1].key == "q");
  CHECK_FALSE(fs::exists(scratch / "out.npz"));

  const auto some = convert(*source, scratch / "some.npz", {.format = target_format::npz, .skip_unsupported = true});
  REQUIRE(some);
  CHECK(some->tensors == 1);
  CHECK(some->skipped_tensors == 2);
  CHECK(some->notes == std::vector<std::string>{"left out, because npz cannot hold them: h, q"});

  convert_options cast{.format = target_format::npz};
  cast.selection.cast.push_back(parse_cast_rule(".*=float32").value());
  REQUIRE(convert(*source, scratch / "all.npz", cast));
  const auto values = load_tensor(*opened(scratch / "all.npz"), "q").value();
  CHECK(values.type() == dtype::float32);
}

TEST_CASE("names that an archive or numpy.load cannot hold are refused") {
  CHECK_FALSE(npz::problem_of("a/b.c", dtype::float64, {2}));
  CHECK(npz::problem_of("\xff", dtype::float64, {2})->code == errc::unsupported);
  CHECK(npz::problem_of(std::string("a\0b", 3), dtype::float64, {2})->code == errc::unsupported);
  CHECK_FALSE(npz::problem_of(std::string(65531, 'x'), dtype::float64, {2}));
  CHECK(npz::problem_of(std::string(65532, 'x'), dtype::float64, {2})->code == errc::unsupported);
  const scratch_folder scratch;
  const std::string array = made::array("|u1", "(1,)", "\7");
  const auto source = opened(written(scratch / "in.npz", made::archive({{"a.npy", array}, {"a.npy.npy", array}})));
  const auto refused = convert(*source, scratch / "out.npz", {.format = target_format::npz});
  REQUIRE_FALSE(refused);
  CHECK(to_string(refused.error()) == "a.npy: numpy.load cannot tell it from a; rename one of them");
}
