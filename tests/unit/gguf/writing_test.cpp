// SPDX-License-Identifier: Apache-2.0
// Tests written GGUF files: plain tensors, quantized ones against the blocks that ggml and the Python package gguf make
// of the same values (tests/oracle/make_gguf.py), blocks that are copied, metadata with its types, and everything
// refused.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <gguf_files.hpp>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <safetensors_files.hpp>
#include <scratch_folder.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

import shardmesh.checkpoint;
import shardmesh.checkpoint_core;
import shardmesh.gguf;

using namespace shardmesh;
namespace fs = std::filesystem;
namespace made = gguf_files;

namespace {

const fs::path sample = fs::path(SHARDMESH_TEST_DATA) / "gguf" / "blocks.gguf";

std::unique_ptr<checkpoint_reader> opened(const fs::path& file) {
  auto reader = open_checkpoint(file);
  INFO((reader ? "" : to_string(reader.error())));
  REQUIRE(reader);
  CHECK(reader.value()->problems().empty());
  return *std::move(reader);
}

// The blocks of a tensor, as the file holds them; empty for a plain tensor.
std::string blocks_in(const checkpoint_reader& reader, std::string_view key) {
  const auto& tensors = reader.contents().tensors;
  const auto found =
      std::find_if(tensors.begin(), tensors.end(), [&](const tensor_entry& one) { return one.key == key; });
  REQUIRE(found != tensors.end());
  const auto blocks = gguf::blocks_of(reader, static_cast<std::size_t>(found - tensors.begin()));
  if (!blocks) return {};
  std::string bytes(static_cast<std::size_t>(blocks->length), '\0');
  REQUIRE(blocks->file->read(blocks->begin, std::as_writable_bytes(std::span(bytes))));
  return bytes;
}

std::string bytes_of(const host_tensor& tensor) {
  return {reinterpret_cast<const char*>(tensor.bytes().data()), tensor.bytes().size()};
}

std::map<std::string, std::string> objects_of(checkpoint_reader& reader) {
  std::map<std::string, std::string> made_of;
  for (std::size_t i = 0; i < reader.contents().objects.size(); ++i) {
    const auto value = reader.read_object(i);
    REQUIRE(value);
    made_of[reader.contents().objects[i].key] = value->json;
  }
  return made_of;
}

convert_options to_gguf(std::vector<const char*> rules = {}) {
  convert_options options{.format = target_format::gguf};
  for (const char* rule : rules) options.quantize.push_back(parse_quantize_rule(rule).value());
  return options;
}

save_report converted(checkpoint_reader& reader, const fs::path& to, const convert_options& options) {
  auto report = convert(reader, to, options);
  INFO((report ? "" : to_string(report.error())));
  REQUIRE(report);
  return *std::move(report);
}

// One float32 tensor in memory.
struct numbers {
  std::vector<float> values;
  extents shape;
  save_tensor as(std::string key) {
    const tensor_view whole{
        reinterpret_cast<std::byte*>(values.data()), dtype::float32, {}, shape, contiguous_strides(shape)};
    return {std::move(key), {}, shape, {{box::whole(shape), whole, 0}}};
  }
};

}  // namespace

TEST_CASE("values are quantized to the blocks that ggml makes of them") {
  const scratch_folder scratch;
  const auto source = opened(sample);
  for (const char* type : {"q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q4_k", "q6_k"}) {
    INFO(type);
    convert_options options = to_gguf({type});
    options.selection.only.push_back(key_pattern::exactly("numbers"));
    options.overwrite = true;
    converted(*source, scratch / "out.gguf", options);
    const auto copy = opened(scratch / "out.gguf");
    CHECK(blocks_in(*copy, "numbers") == blocks_in(*source, std::string("numbers.") + type));
    CHECK(objects_of(*copy).at("general.quantization_version") == "2");
  }
}

TEST_CASE("blocks of a GGUF file are copied unchanged unless a rule gives them another type") {
  const scratch_folder scratch;
  const auto source = opened(sample);
  convert_options options = to_gguf({"q4_k=F32", "q6_k=Q8_0"});
  options.selection.skip.push_back(key_pattern::exactly("opaque"));
  const save_report report = converted(*source, scratch / "out.gguf", options);
  CHECK(report.tensors == 24);
  const auto copy = opened(scratch / "out.gguf");
  for (const tensor_entry& tensor : copy->contents().tensors) {
    INFO(tensor.key);
    if (tensor.key == "q6_k") continue;
    if (tensor.key == "q4_k")
      CHECK(blocks_in(*copy, tensor.key).empty());
    else
      CHECK(blocks_in(*copy, tensor.key) == blocks_in(*source, tensor.key));
    CHECK(bytes_of(load_tensor(*copy, tensor.key).value()) == bytes_of(load_tensor(*source, tensor.key).value()));
  }
  CHECK(blocks_in(*copy, "q6_k").size() == 2 * 256 / 32 * 34);
}

TEST_CASE("metadata keeps its values and its types, also through another format") {
  const scratch_folder scratch;
  const auto source = opened(sample);
  convert_options options{.format = target_format::safetensors};
  options.selection.only.push_back(key_pattern::compile("numbers|test.*|general.*").value());
  converted(*source, scratch / "middle.safetensors", options);
  const auto middle = opened(scratch / "middle.safetensors");
  converted(*middle, scratch / "out.gguf", to_gguf());
  const auto copy = opened(scratch / "out.gguf");
  CHECK(objects_of(*copy) == objects_of(*source));
  const auto types_of = [](const fs::path& file) {
    file_pool pool(1);
    const auto bytes = pool.open(file).value();
    read_budget budget;
    std::map<std::string, std::pair<gguf::value_type, gguf::value_type>> types;
    const gguf::header header = gguf::parse_header(*bytes, budget).value();
    for (const gguf::metadata_entry& entry : header.metadata) types[entry.key] = {entry.type, entry.elements};
    return types;
  };
  CHECK(types_of(scratch / "out.gguf") == types_of(sample));
}

TEST_CASE("plain tensors of every dtype keep their bits, and shapes are reversed in the file") {
  const scratch_folder scratch;
  std::vector<save_tensor> tensors;
  std::vector<std::vector<std::byte>> memory;
  const std::vector<dtype> types{dtype::float32, dtype::float16, dtype::bfloat16, dtype::float64,
                                 dtype::int8,    dtype::int16,   dtype::int32,    dtype::int64};
  for (const dtype type : types) {
    auto& bytes = memory.emplace_back(static_cast<std::size_t>(6 * item_bytes(type)));
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(7 * i + 1);
    const tensor_view whole{bytes.data(), type, {}, {3, 2}, {2, 1}};
    tensors.push_back({"t." + std::string(name(type)), {}, {3, 2}, {{box::whole({3, 2}), whole, 0}}});
  }
  REQUIRE(save(scratch / "out.gguf", tensors, target_format::gguf));
  const auto copy = opened(scratch / "out.gguf");
  for (std::size_t i = 0; i < types.size(); ++i) {
    const host_tensor loaded = load_tensor(*copy, tensors[i].key).value();
    CHECK(loaded.type() == types[i]);
    CHECK(loaded.sizes() == extents{3, 2});
    CHECK(std::equal(memory[i].begin(), memory[i].end(), loaded.bytes().begin(), loaded.bytes().end()));
    const stored_range& place = copy->contents().chunk_places[i];
    CHECK(place.offset % 32 == 0);
  }
  CHECK(fs::file_size(scratch / "out.gguf") % 32 == 0);
}

TEST_CASE("scalars and tensors without elements are written") {
  const scratch_folder scratch;
  numbers scalar{{2.5F}, {}}, none{{}, {0, 3}};
  REQUIRE(save(scratch / "out.gguf", std::vector{scalar.as("scalar"), none.as("none")}, target_format::gguf));
  const auto copy = opened(scratch / "out.gguf");
  const host_tensor loaded = load_tensor(*copy, "scalar").value();
  CHECK(std::as_const(loaded).values<float>()[0] == 2.5F);
  CHECK(copy->contents().find("none")->shape == extents{0, 3});
}

TEST_CASE("a rule without a pattern quantizes matrices of whole blocks, and a note counts the others") {
  const scratch_folder scratch;
  numbers norm{std::vector<float>(64, 1), {64}}, matrix{std::vector<float>(128, 1), {2, 64}},
      odd{std::vector<float>(66, 1), {2, 33}};
  REQUIRE(save(scratch / "in.safetensors", std::vector{norm.as("norm"), matrix.as("matrix"), odd.as("odd")},
               target_format::safetensors));
  const auto source = opened(scratch / "in.safetensors");
  const save_report report = converted(*source, scratch / "out.gguf", to_gguf({"Q4_0"}));
  const auto copy = opened(scratch / "out.gguf");
  CHECK(blocks_in(*copy, "norm").empty());
  CHECK(blocks_in(*copy, "odd").empty());
  CHECK(blocks_in(*copy, "matrix").size() == 4 * 18);
  CHECK(std::count(report.notes.begin(), report.notes.end(),
                   "not quantized: 1 tensor whose rows are not whole blocks") == 1);
}

TEST_CASE("values that blocks cannot hold are refused by key and place, and nothing is left") {
  const scratch_folder scratch;
  for (const float value : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN(), 1e30F}) {
    numbers w{std::vector<float>(512, 1), {2, 256}};
    w.values[70] = value;
    REQUIRE(save(scratch / "in.safetensors", std::vector{w.as("w")}, target_format::safetensors, {.overwrite = true}));
    const auto source = opened(scratch / "in.safetensors");
    for (const std::string type : {"Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q6_K"}) {
      INFO(type << " " << value);
      const auto refused = convert(*source, scratch / "out.gguf", to_gguf({type.c_str()}));
      REQUIRE_FALSE(refused);
      CHECK(refused.error().code == errc::unsupported);
      CHECK(refused.error().key == "w");
      CHECK(refused.error().found ==
            "others in elements " + std::string(type.ends_with("_K") ? "0 to 255" : "64 to 95"));
      CHECK_FALSE(fs::exists(scratch / "out.gguf"));
    }
  }
}

TEST_CASE("everything that GGUF cannot hold is refused before a file exists") {
  const scratch_folder scratch;
  std::vector<std::byte> bytes(16);
  const auto refusal_of = [&](dtype type, const extents& shape, std::string key = "w") {
    const tensor_view whole{bytes.data(), type, {}, shape, contiguous_strides(shape)};
    const save_tensor tensor{std::move(key), {}, shape, {{box::whole(shape), whole, 0}}};
    const auto refused = save(scratch / "out.gguf", {&tensor, 1}, target_format::gguf);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == errc::unsupported);
    CHECK_FALSE(fs::exists(scratch / "out.gguf"));
    return refused.error().message;
  };
  CHECK(refusal_of(dtype::boolean, {2}) == "GGUF cannot hold bool");
  CHECK(refusal_of(dtype::uint8, {2}) == "GGUF cannot hold uint8");
  CHECK(refusal_of(dtype::int8, {1, 1, 1, 1, 1}) == "has more dimensions than GGUF can hold");
  CHECK(refusal_of(dtype::int8, {2}, "\xff") == "the name is not UTF-8, which GGUF needs");
}

TEST_CASE("rules that cannot apply are refused") {
  for (const char* rule : {"Q5_K", "IQ4_NL", "w=Q2_K"})
    CHECK(parse_quantize_rule(rule).error().message.ends_with("this type is only read"));
  const error plain = parse_quantize_rule("w=F16").error();
  CHECK(plain.message == "'w=F16': this type has no blocks: a cast gives it");
  CHECK(plain.hint == "pass dtype float16");
  CHECK(parse_quantize_rule("IQ1_S").error().message == "'IQ1_S': this type is neither read nor written");
  CHECK(parse_quantize_rule("Q9").error().message == "'Q9': no type of GGUF has this name");
  CHECK(to_string(parse_quantize_rule("a.*=q8_0").value()) == "a.*=Q8_0");
  const scratch_folder scratch;
  const auto source = opened(sample);
  const auto refused = [&](convert_options options, const char* to) {
    const auto report = convert(*source, scratch / to, options);
    REQUIRE_FALSE(report);
    return to_string(report.error());
  };
  convert_options options = to_gguf({"nothing=Q8_0"});
  options.selection.only.push_back(key_pattern::exactly("numbers"));
  CHECK(refused(options, "x.gguf").find("quantize 'nothing=Q8_0' matches no key") != std::string::npos);
  options.format = target_format::safetensors;
  CHECK(refused(options, "x.safetensors").find("quantize applies only to gguf") != std::string::npos);
  CHECK(refused(to_gguf(), "x.gguf").find("opaque") != std::string::npos);
}

TEST_CASE("objects without a type of GGUF are kept in one string, and come back") {
  const scratch_folder scratch;
  const fs::path golden = fs::path(SHARDMESH_TEST_DATA) / "golden" / "era_torch_2.15.0" / "checkpoint";
  const auto source = opened(golden);
  const save_report report = converted(*source, scratch / "out.gguf", to_gguf());
  CHECK(std::count(report.notes.begin(), report.notes.end(),
                   "the file has no general.architecture: llama.cpp cannot load it as a model") == 1);
  const auto copy = opened(scratch / "out.gguf");
  CHECK(objects_of(*copy) == objects_of(*source));
  const auto difference = diff(*source, *copy);
  INFO((difference ? "" : to_string(difference.error())));
  REQUIRE(difference);
  CHECK(difference->differences.empty());
  CHECK(difference->problems.empty());
}

TEST_CASE("a text whose name is too long for a key is left out with a note") {
  const scratch_folder scratch;
  const std::string prefix = "shardmesh.text.";
  const std::string longest(65535 - prefix.size(), 'k'), longer = longest + "k";
  const std::string bytes =
      safetensors_files::bytes("{\"__metadata__\":{\"" + longest + "\":\"kept\",\"" + longer +
                                   "\":\"lost\"},\"t\":{\"dtype\":\"I8\",\"shape\":[4],\"data_offsets\":[0,4]}}",
                               4);
  std::ofstream(scratch / "in.safetensors", std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  const auto source = opened(scratch / "in.safetensors");
  const save_report report = converted(*source, scratch / "out.gguf", to_gguf());
  CHECK(std::count_if(report.notes.begin(), report.notes.end(), [](const std::string& note) {
          return note.starts_with("not kept: a text whose name is longer than the 65535 bytes of a GGUF key: kkk");
        }) == 1);
  const auto copy = opened(scratch / "out.gguf");
  REQUIRE(copy->contents().texts.size() == 1);
  CHECK(copy->contents().texts[0].key == longest);
  CHECK(copy->contents().texts[0].value == "kept");
}

TEST_CASE("the alignment of a file is that of its metadata") {
  made::file file;
  file.alignment = 128;
  file.value("general.alignment", made::uint32, made::number(128U));
  file.tensor("a", {1}, made::i8, 0).tensor("b", {1}, made::i8, 128);
  file.data = "x" + std::string(127, '\0') + "y";
  const scratch_folder scratch;
  const std::string bytes = file.bytes();
  std::ofstream(scratch / "in.gguf", std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  const auto source = opened(scratch / "in.gguf");
  converted(*source, scratch / "out.gguf", to_gguf());
  const auto copy = opened(scratch / "out.gguf");
  for (const stored_range& place : copy->contents().chunk_places) CHECK(place.offset % 128 == 0);
  CHECK(bytes_of(load_tensor(*copy, "b").value()) == "y");
}
