// SPDX-License-Identifier: Apache-2.0
// Tests safetensors files: reading and laying out headers, each kind of damage, golden files, speed, and checksums.
#include <fmt/format.h>
#include <catch2/catch_test_macros.hpp>
#include <cpu_time.hpp>
#include <nlohmann/json.hpp>
#include <safetensors_files.hpp>
#include <shardmesh/dtype.hpp>
#include <shardmesh/extents.hpp>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <utility>
#include <vector>

import shardmesh.safetensors;

using namespace shardmesh;
namespace fs = std::filesystem;

namespace {

result<safetensors::header> parse(const std::string& file) {
  const memory_source source(std::as_bytes(std::span(file)), "f.safetensors");
  return safetensors::parse_header(source);
}
result<safetensors::header> parse(std::string_view json, std::size_t data) {
  return parse(safetensors_files::bytes(json, data));
}

void check_refused(std::string_view json, std::size_t data, errc code, std::string_view key, std::string_view words) {
  INFO(json);
  const auto header = parse(json, data);
  REQUIRE_FALSE(header);
  const error& e = header.error();
  CHECK(e.code == code);
  CHECK(e.key == key);
  CHECK(e.file == "f.safetensors");
  INFO(to_string(e));
  CHECK(to_string(e).find(words) != std::string::npos);
}

}  // namespace

TEST_CASE("a safetensors header gives names, dtypes, shapes and absolute offsets in file order") {
  const std::string json =
      R"({"__metadata__":{"b":"2","a":"1"},"y":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},)"
      R"("x":{"data_offsets":[0,4],"shape":[],"dtype":"F32","extra":{"any":[1,{"thing":null}]}}}   )";
  const auto header = parse(json, 16);
  REQUIRE(header);
  const auto begin = static_cast<std::int64_t>(json.size()) + 8;
  CHECK(header->data_begin == begin);
  CHECK(header->entries == std::vector<safetensors::entry>{{"x", dtype::float32, {}, begin, begin + 4},
                                                           {"y", dtype::bfloat16, {2, 3}, begin + 4, begin + 16}});
  CHECK(header->metadata == std::vector<std::pair<std::string, std::string>>{{"b", "2"}, {"a", "1"}});
  CHECK(safetensors::find_metadata(*header, "a") == "1");
  CHECK_FALSE(safetensors::find_metadata(*header, "c"));
}

TEST_CASE("a file without tensors, with empty tensors and with odd names is read") {
  CHECK(parse("{}", 0)->entries.empty());
  const auto header = parse(
      R"({"e":{"dtype":"I64","shape":[0,9223372036854775807,5],"data_offsets":[0,0]},"\u00e9\n":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"":{"dtype":"BOOL","shape":[0],"data_offsets":[1,1]}})",
      1);
  REQUIRE(header);
  CHECK(header->entries.size() == 3);
  CHECK(std::any_of(header->entries.begin(), header->entries.end(),
                    [](const auto& e) { return e.name == "\xC3\xA9\n"; }));
}

TEST_CASE("a pointer of Git LFS in place of a safetensors file is named") {
  const auto header = parse("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 3\n");
  REQUIRE_FALSE(header);
  CHECK(header.error().code == errc::unsupported);
  CHECK(header.error().file == "f.safetensors");
  CHECK(header.error().message == "it is a pointer of Git LFS, not the file itself");
  CHECK(header.error().hint == "git lfs pull");
}

TEST_CASE("F4 is PyTorch's two-in-a-byte type with half the last size") {
  const auto header = parse(
      R"({"a":{"dtype":"F4","shape":[3,8],"data_offsets":[0,12]},"b":{"dtype":"F4","shape":[2,3],"data_offsets":[12,15]},"c":{"dtype":"F6_E2M3","shape":[4],"data_offsets":[15,18]}})",
      18);
  REQUIRE(header);
  CHECK(header->entries[0].type == dtype::float4_e2m1fn_x2);
  CHECK(header->entries[0].shape == extents{3, 4});
  CHECK(header->entries[1].type == dtype::float4_e2m1fn);
  CHECK(header->entries[1].shape == extents{2, 3});
  CHECK(header->entries[2].type == dtype::float6_e2m3);
  check_refused(R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}})", 2, errc::bad_format, "a",
                "whole number of bytes");
}

TEST_CASE("each broken header is refused with its key and reason") {
  const auto one = [](std::string_view fields) { return fmt::format("{{\"w\":{{{}}}}}", fields); };
  check_refused("[]", 0, errc::bad_format, "", "does not begin with {");
  check_refused("\xEF\xBB\xBF{}", 0, errc::bad_format, "", "does not begin with {");
  check_refused("  ", 0, errc::bad_format, "", "does not begin with {");
  check_refused("{", 0, errc::bad_format, "", "not JSON");
  check_refused("{}x", 0, errc::bad_format, "", "not JSON");
  check_refused(std::string_view("{}\0", 3), 0, errc::bad_format, "", "NUL");
  check_refused("{\"\xFF\":1}", 0, errc::bad_format, "", "not JSON");
  check_refused(R"({"w":1})", 0, errc::bad_format, "w", "not an object");
  check_refused(R"({"w":[]})", 0, errc::bad_format, "w", "not an object");
  check_refused(R"({"__metadata__":[]})", 0, errc::bad_format, "__metadata__", "not an object");
  check_refused(R"({"__metadata__":{"a":1}})", 0, errc::bad_format, "__metadata__", "a is not a string");
  check_refused(R"({"__metadata__":{"a":"1","a":"2"}})", 0, errc::duplicate_key, "__metadata__", "twice");
  check_refused(one(R"("shape":[1],"data_offsets":[0,4])"), 4, errc::bad_format, "w", "no dtype");
  check_refused(one(R"("dtype":"F32","data_offsets":[0,4])"), 4, errc::bad_format, "w", "no shape");
  check_refused(one(R"("dtype":"F32","shape":[1])"), 4, errc::bad_format, "w", "no data_offsets");
  check_refused(one(R"("dtype":"F33","shape":[1],"data_offsets":[0,4])"), 4, errc::unsupported, "w", "F33");
  check_refused(one(R"("dtype":5,"shape":[1],"data_offsets":[0,4])"), 4, errc::bad_format, "w",
                "dtype has a value of the wrong type");
  check_refused(one(R"("dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4])"), 4, errc::duplicate_key, "w",
                "dtype twice");
  check_refused(one(R"("dtype":"F32","shape":[-1],"data_offsets":[0,4])"), 4, errc::bad_format, "w", "negative");
  check_refused(one(R"("dtype":"F32","shape":[1.0],"data_offsets":[0,4])"), 4, errc::bad_format, "w", "wrong type");
  check_refused(one(R"("dtype":"F32","shape":[[1]],"data_offsets":[0,4])"), 4, errc::bad_format, "w", "wrong type");
  check_refused(one(R"("dtype":"F32","shape":1,"data_offsets":[0,4])"), 4, errc::bad_format, "w", "wrong type");
  check_refused(one(R"("dtype":"F32","shape":[1],"data_offsets":[0])"), 4, errc::bad_format, "w", "fewer than two");
  check_refused(one(R"("dtype":"F32","shape":[1],"data_offsets":[0,4,4])"), 4, errc::bad_format, "w", "more than two");
  check_refused(one(R"("dtype":"F32","shape":[1],"data_offsets":[4,0])"), 4, errc::bad_format, "w", "backwards");
  check_refused(one(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])"), 4, errc::bad_format, "w",
                "expected 8 bytes, found 4");
  check_refused(one(R"("dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4])"), 4, errc::overflow, "w",
                "63 bits");
  check_refused(one(R"("dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0])"), 0, errc::overflow, "w",
                "64 bits");
  check_refused(one(R"("dtype":"F32","shape":[1],"data_offsets":[9223372036854775803,9223372036854775807])"), 4,
                errc::overflow, "w", "");
  check_refused(one(R"("dtype":"U8","shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],"data_offsets":[0,1])"), 1,
                errc::rank_too_large, "w", "16");
  check_refused(one(R"("dtype":"U8","shape":[1],"data_offsets":[1,2])"), 2, errc::bad_format, "w", "gap");
  check_refused(one(R"("dtype":"U8","shape":[1],"data_offsets":[0,1])"), 2, errc::bad_format, "", "longer");
  check_refused(one(R"("dtype":"U8","shape":[2],"data_offsets":[0,2])"), 1, errc::bad_format, "w", "shorter");
  check_refused(
      R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"a":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})", 4,
      errc::duplicate_key, "a", "twice");
  check_refused(
      R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})", 3,
      errc::bad_format, "b", "overlaps a");
}

TEST_CASE("a header length beyond the file or the cap is refused before anything is allocated") {
  for (const std::string& file : {std::string("\x08\0\0\0\0\0\0\0{}", 10),
                                  std::string("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF{}", 10), std::string("\x02\0\0", 3)}) {
    const auto header = parse(file);
    REQUIRE_FALSE(header);
    CHECK(header.error().code == errc::bad_format);
  }
}

TEST_CASE("an unknown field is skipped as deep as the package goes, and refused below that without recursion") {
  const auto nested = [](std::size_t levels) {
    return R"({"w":{"extra":)" + std::string(levels, '[') + std::string(levels, ']') +
           R"(,"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
  };
  CHECK(parse(nested(125), 1));
  for (const std::size_t levels : {126, 127, 1000, 200000})
    check_refused(nested(levels), 1, errc::bad_format, "w", "nested deeper than 127 levels");
}

TEST_CASE("white space before the header, and no metadata, are read") {
  for (const std::string_view space : {" ", "\n", "\t\r\n ", "                    "})
    CHECK(parse(std::string(space) + "{}", 0)->entries.empty());
  const auto header = parse(R"({"__metadata__":null,"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1);
  REQUIRE(header);
  CHECK(header->metadata.empty());
  CHECK(header->entries.size() == 1);
  check_refused(R"({"__metadata__":null,"__metadata__":null})", 0, errc::duplicate_key, "__metadata__", "twice");
}

TEST_CASE("sizes that overflow before a size of 0 are refused, as the package does") {
  const auto of_shape = [](std::string_view shape) {
    return fmt::format(R"({{"w":{{"dtype":"F32","shape":[{}],"data_offsets":[0,0]}}}})", shape);
  };
  for (const std::string_view shape :
       {"4294967296,4294967296,0", "9223372036854775807,3,0", "2,9223372036854775807,2,0,1"})
    check_refused(of_shape(shape), 0, errc::overflow, "w", "does not fit in 64 bits");
  for (const std::string_view shape : {"0,4294967296,4294967296", "9223372036854775807,2,0", "4294967295,4294967297,0"})
    CHECK(parse(of_shape(shape), 0));
}

TEST_CASE("every expected.safetensors of the golden data holds the tensors it says") {
  std::size_t files = 0;
  for (const auto& folder : fs::directory_iterator(SHARDMESH_TEST_DATA "/golden")) {
    const fs::path path = folder.path() / "expected.safetensors";
    if (!fs::exists(path)) continue;
    ++files;
    INFO(path.string());
    std::ifstream in(folder.path() / "expected.json");
    const auto expected = nlohmann::json::parse(in).at("tensors");
    file_pool pool;
    const auto source = pool.open(path);
    REQUIRE(source);
    const auto header = safetensors::parse_header(**source);
    REQUIRE(header);
    std::size_t held = 0;
    for (const auto& [name, tensor] : expected.items()) held += tensor.value("in_safetensors", true) ? 1 : 0;
    CHECK(header->entries.size() == held);
    for (const safetensors::entry& entry : header->entries) {
      const auto& tensor = expected.at(entry.name);
      CHECK(tensor.at("dtype") == std::string(name(entry.type)));
      CHECK(tensor.at("shape") == std::vector<std::int64_t>(entry.shape.begin(), entry.shape.end()));
      CHECK(tensor.at("nbytes") == entry.end - entry.begin);
    }
  }
  CHECK(files > 20);
}

TEST_CASE("a laid-out file is read back with the same tensors, aligned and without gaps") {
  std::vector<safetensors::tensor> tensors;
  for (const dtype type : all_dtypes()) {
    if (!safetensors::can_hold(type)) continue;
    tensors.push_back({std::string(name(type)) + ".a", type, {4, 4}});
    tensors.push_back({std::string(name(type)) + ".\xC3\xA9\"\\\n", type, {3, 8}});
    tensors.push_back({std::string(name(type)) + ".empty", type, {0, 2}});
  }
  tensors.push_back({"scalar", dtype::float64, {}});
  const std::vector<std::pair<std::string, std::string>> metadata{{"format", "pt"}, {"q\"", "\t"}};
  const auto layout = safetensors::layout_file(tensors, metadata);
  REQUIRE(layout);
  CHECK(layout->header.size() % 8 == 0);
  std::string file = layout->header;
  file.resize(static_cast<std::size_t>(layout->size_bytes));
  const auto header = parse(file);
  REQUIRE(header);
  CHECK(header->metadata == metadata);
  REQUIRE(header->entries.size() == tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto found = std::find_if(header->entries.begin(), header->entries.end(),
                                    [&](const auto& e) { return e.name == tensors[i].name; });
    REQUIRE(found != header->entries.end());
    CHECK(found->begin == layout->begins[i]);
    // F4 of an even last size always reads back as PyTorch's type.
    if (tensors[i].type == dtype::float4_e2m1fn) continue;
    CHECK(found->type == tensors[i].type);
    CHECK(found->shape == tensors[i].shape);
    if (bits(tensors[i].type) % 8 == 0)
      CHECK(found->begin % std::min<std::int64_t>(item_bytes(tensors[i].type), 8) == 0);
  }
}

TEST_CASE("the header is what the Rust writer makes") {
  // Written by safetensors 0.8.0: save({...}, metadata={"a/b": "x\ty"}).
  const std::string expected =
      R"({"__metadata__":{"a/b":"x\ty"},"i":{"dtype":"I64","shape":[2],"data_offsets":[0,16]},"F":{"dtype":"F32","shape":[2],"data_offsets":[16,24]},"empty":{"dtype":"F32","shape":[0,3],"data_offsets":[24,24]},"h":{"dtype":"F16","shape":[2],"data_offsets":[24,28]},"f4":{"dtype":"F4","shape":[4],"data_offsets":[28,30]},"bool":{"dtype":"BOOL","shape":[2],"data_offsets":[30,32]}})";
  const std::vector<safetensors::tensor> tensors{{"bool", dtype::boolean, {2}}, {"f4", dtype::float4_e2m1fn_x2, {2}},
                                                 {"h", dtype::float16, {2}},    {"empty", dtype::float32, {0, 3}},
                                                 {"F", dtype::float32, {2}},    {"i", dtype::int64, {2}}};
  const auto layout =
      safetensors::layout_file(tensors, std::vector<std::pair<std::string, std::string>>{{"a/b", "x\ty"}});
  REQUIRE(layout);
  std::string json = layout->header.substr(8);
  json.erase(json.find_last_not_of(' ') + 1);
  CHECK(json == expected);
  CHECK(layout->order == std::vector<std::size_t>{5, 4, 3, 2, 1, 0});
}

TEST_CASE("tensors that safetensors cannot hold are all named") {
  const std::vector<safetensors::tensor> tensors{{"c", dtype::complex128, {2}},
                                                 {"ok", dtype::float32, {2}},
                                                 {"\xFF", dtype::float32, {1}},
                                                 {"b", dtype::bits8, {1}},
                                                 {"ok", dtype::uint8, {1}},
                                                 {"__metadata__", dtype::uint8, {1}},
                                                 {"huge", dtype::float64, {INT64_MAX / 2, 2}},
                                                 {"f4", dtype::float4_e2m1fn_x2, {}}};
  const auto problems = safetensors::problems_of(tensors);
  std::vector<std::pair<std::string, errc>> found;
  for (const error& e : problems) found.emplace_back(e.key, e.code);
  CHECK(found == std::vector<std::pair<std::string, errc>>{{"c", errc::unsupported},
                                                           {"\xFF", errc::unsupported},
                                                           {"b", errc::unsupported},
                                                           {"ok", errc::duplicate_key},
                                                           {"__metadata__", errc::unsupported},
                                                           {"huge", errc::overflow},
                                                           {"f4", errc::unsupported}});
  const auto layout = safetensors::layout_file(tensors);
  REQUIRE_FALSE(layout);
  CHECK(layout.error().code == errc::unsupported);
  CHECK(layout.error().message.find("complex128") != std::string::npos);
  CHECK(layout.error().message.find("huge") != std::string::npos);
}

TEST_CASE("a shape whose sizes overflow before a size of 0 is not written, since no reader takes it") {
  constexpr std::int64_t large = std::int64_t{1} << 40;
  const std::vector<safetensors::tensor> late{{"w", dtype::float32, {large, large, 0}}},
      early{{"w", dtype::float32, {0, large, large}}};
  REQUIRE_FALSE(safetensors::layout_file(late));
  CHECK(safetensors::layout_file(late).error().code == errc::overflow);
  const auto layout = safetensors::layout_file(early);
  REQUIRE(layout);
  CHECK(parse(layout->header)->entries[0].shape == extents{0, large, large});
}

TEST_CASE("200,000 entries parse in well under a second") {
  std::vector<safetensors::tensor> tensors;
  for (int i = 0; i < 200'000; ++i)
    tensors.push_back(
        {fmt::format("model.layers.{}.mlp.experts.{}.down_proj.weight", i / 256, i % 256), dtype::bfloat16, {2, 3}});
  const auto layout = safetensors::layout_file(tensors);
  REQUIRE(layout);
  std::string file = layout->header;
  file.resize(static_cast<std::size_t>(layout->size_bytes));
  const double start = cpu_seconds();
  const auto header = parse(file);
  const double took = cpu_seconds() - start;
  REQUIRE(header);
  CHECK(header->entries.size() == 200'000);
  INFO("200,000 entries: " << took << " s");
  CHECK(took < 10);  // generous: sanitizers and busy machines
}

TEST_CASE("checksums are patched into the header and verified from it") {
  const std::vector<safetensors::tensor> tensors{{"a", dtype::uint8, {3}}, {"b", dtype::float32, {2}}};
  const auto layout = safetensors::layout_file(
      tensors, std::vector<std::pair<std::string, std::string>>{
                   {std::string(safetensors::checksum_key), safetensors::checksum_placeholder(2)}, {"format", "pt"}});
  REQUIRE(layout);
  std::string text = layout->header;
  const std::string data = "abcdefghijk";
  const std::vector<digest128> digests{xxh3(std::as_bytes(std::span(data)).first(8)),
                                       xxh3(std::as_bytes(std::span(data)).subspan(8))};
  REQUIRE(safetensors::patch_checksums(text, digests));
  CHECK(text.size() == layout->header.size());
  const auto read = [](const std::string& header_text, const std::string& rest) {
    const auto header = parse(header_text + rest);
    REQUIRE(header);
    return safetensors::read_checksums(std::as_bytes(std::span(header_text)), *header);
  };
  const auto found = read(text, data);
  REQUIRE(found);
  REQUIRE(*found);
  CHECK(**found == digests);

  std::string renamed = text;
  renamed.replace(renamed.find("\"pt\""), 4, "\"tf\"");
  CHECK(read(renamed, data).error().code == errc::checksum_mismatch);
  std::string flipped = text;
  flipped[flipped.find(to_hex(digests[0]))] ^= 1;
  CHECK(read(flipped, data));  // the header's digest does not cover tensors' digests; the tensor's check will fail
  std::string not_hex = text;
  not_hex[not_hex.find(to_hex(digests[0]))] = 'X';
  CHECK(read(not_hex, data).error().code == errc::bad_format);
  std::string none = text;
  none.replace(none.find("shardmesh.xxh3"), 14, "shardmesh.xxh4");
  REQUIRE(read(none, data));
  CHECK_FALSE(*read(none, data));
  CHECK(safetensors::patch_checksums(none, digests).error().code == errc::invalid_argument);
  CHECK_FALSE(safetensors::patch_checksums(text, std::span(digests).first(1)));
}

TEST_CASE("XXH3-128 has its published values, whole or in pieces") {
  // The digest of empty input, as xxhsum -H2 prints it.
  CHECK(to_hex(xxh3({})) == "99aa06d3014798d86001c324468d497f");
  std::string text(1000, 'x');
  xxh3_stream stream;
  stream.update(std::as_bytes(std::span(text)).first(333));
  stream.update(std::as_bytes(std::span(text)).subspan(333));
  CHECK(stream.digest() == xxh3(std::as_bytes(std::span(text))));
}
