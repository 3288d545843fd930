// SPDX-License-Identifier: Apache-2.0
// Tests Hugging Face folders: PyTorch's own files, correct and wrong indices, sharding info, and how tensors are
// distributed over files.
#include <fmt/format.h>
#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>
#include <safetensors_files.hpp>
#include <shardmesh/dtype.hpp>
#include <shardmesh/extents.hpp>
#include <shardmesh/tensor_view.hpp>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

import shardmesh.checkpoint;
import shardmesh.safetensors;
import shardmesh.storage;

using namespace shardmesh;
namespace fs = std::filesystem;

namespace {

// A file of uint8 tensors with the given names and sizes.
std::string tensor_file(const std::map<std::string, std::int64_t>& sizes, std::string metadata = {}) {
  std::string json = "{";
  if (!metadata.empty()) json += "\"__metadata__\":" + metadata + ",";
  std::int64_t end = 0;
  for (const auto& [name, size] : sizes) {
    json += fmt::format(R"("{}":{{"dtype":"U8","shape":[{}],"data_offsets":[{},{}]}},)", name, size, end, end + size);
    end += size;
  }
  if (json.back() == ',') json.pop_back();
  return safetensors_files::bytes(json + "}", static_cast<std::size_t>(end));
}

std::string index_of(const std::map<std::string, std::string>& weight_map) {
  return nlohmann::json{{"metadata", {{"total_size", 7}}}, {"weight_map", weight_map}}.dump();
}

std::string sharding(const std::string& info) {
  return nlohmann::json{{"DCP_SHARDING_INFO", info}, {"format", "pt"}}.dump();
}

void check_refused(const fs::path& folder, errc code, std::string_view key, const std::vector<std::string>& words) {
  file_pool pool;
  const auto opened = safetensors::open_hf_folder(folder, pool);
  REQUIRE_FALSE(opened);
  INFO(to_string(opened.error()));
  CHECK(opened.error().code == code);
  CHECK(opened.error().key == key);
  for (const std::string& word : words) CHECK(to_string(opened.error()).find(word) != std::string::npos);
}

// Assembles the bytes of a whole tensor from its chunks.
std::vector<std::byte> assemble(const safetensors::hf_folder& folder, const safetensors::hf_tensor& tensor) {
  auto whole = host_tensor::make(tensor.type, tensor.shape).value();
  for (const safetensors::hf_chunk& chunk : tensor.chunks) {
    auto part = host_tensor::make(tensor.type, chunk.sizes).value();
    REQUIRE(static_cast<std::int64_t>(part.bytes().size()) == chunk.end - chunk.begin);
    REQUIRE(folder.files[chunk.file].source->read(chunk.begin, part.bytes()));
    REQUIRE(copy(subview(adapter<host_tensor>::view(whole), {chunk.offsets, chunk.sizes}),
                 adapter<host_tensor>::view(part)));
  }
  return {whole.bytes().begin(), whole.bytes().end()};
}

}  // namespace

TEST_CASE("the Hugging Face folders that PyTorch wrote hold the expected tensors, bit for bit") {
  const fs::path golden = SHARDMESH_TEST_DATA "/golden";
  const std::vector<std::pair<fs::path, fs::path>> folders{
      {golden / "hf_sharded/checkpoint", golden / "hf_sharded"},
      {golden / "hf_consolidated/checkpoint", golden / "hf_consolidated"},
      {golden / "hf_consolidated/checkpoint/sharded", golden / "hf_consolidated"}};
  for (const auto& [path, reference] : folders) {
    INFO(path.string());
    file_pool pool;
    const auto opened = safetensors::open_hf_folder(path, pool);
    REQUIRE(opened);
    const auto expected = safetensors::open_hf_folder(reference / "expected.safetensors", pool);
    REQUIRE(expected);
    REQUIRE(opened->tensors.size() == expected->tensors.size());
    for (std::size_t i = 0; i < expected->tensors.size(); ++i) {
      const safetensors::hf_tensor &found = opened->tensors[i], &wanted = expected->tensors[i];
      INFO(wanted.name);
      CHECK(found.name == wanted.name);
      CHECK(found.type == wanted.type);
      REQUIRE(found.shape == wanted.shape);
      CHECK(assemble(*opened, found) == assemble(*expected, wanted));
    }
  }
}

TEST_CASE("the chunks of a sharded folder are the boxes that PyTorch held") {
  file_pool pool;
  const auto opened = safetensors::open_hf_folder(SHARDMESH_TEST_DATA "/golden/hf_sharded/checkpoint", pool);
  REQUIRE(opened);
  CHECK_FALSE(opened->index);
  const safetensors::hf_tensor& tensor = opened->tensors[2];
  REQUIRE(tensor.name == "c.w");
  REQUIRE(tensor.chunks.size() == 2);
  CHECK(tensor.chunks[0].offsets == extents{0, 0});
  CHECK(tensor.chunks[0].sizes == extents{3, 4});
  CHECK(tensor.chunks[1].offsets == extents{0, 4});
  CHECK(tensor.chunks[1].sizes == extents{3, 3});
  CHECK(opened->files[tensor.chunks[1].file].name == "shard-00002-model-00001-of-00001.safetensors");
}

TEST_CASE("without an index all safetensors files of a folder are one model, in name order") {
  const safetensors_files::temporary_folder folder;
  folder.write("b.safetensors", tensor_file({{"x", 2}}));
  folder.write("a.safetensors", tensor_file({{"y", 3}, {"z", 0}}));
  folder.write("._a.safetensors", "not one");
  folder.write("notes.txt", "");
  file_pool pool;
  const auto opened = safetensors::open_hf_folder(folder.path(), pool);
  REQUIRE(opened);
  CHECK(opened->files[0].name == "a.safetensors");
  REQUIRE(opened->tensors.size() == 3);
  CHECK(opened->tensors[0].name == "x");
  CHECK(opened->tensors[0].chunks[0].file == 1);
  folder.write("c.safetensors", tensor_file({{"x", 2}}));
  check_refused(folder.path(), errc::duplicate_key, "x", {"b.safetensors", "c.safetensors"});
}

TEST_CASE("a folder without safetensors files is refused") {
  const safetensors_files::temporary_folder folder;
  check_refused(folder.path(), errc::bad_format, "", {"no safetensors file"});
  check_refused(folder.path() / "gone.safetensors", errc::io, "", {"gone.safetensors"});
}

TEST_CASE("an index chooses the files and must agree with them") {
  const safetensors_files::temporary_folder folder;
  folder.write("1.safetensors", tensor_file({{"x", 2}}));
  folder.write("2.safetensors", tensor_file({{"y", 3}}));
  folder.write("stray.safetensors", tensor_file({{"x", 2}, {"q", 2}}));
  const std::string name(safetensors::hf_index_name);
  folder.write(name, index_of({{"x", "1.safetensors"}, {"y", "2.safetensors"}}));
  file_pool pool;
  for (const fs::path& path : {folder.path(), folder.path() / name}) {
    const auto opened = safetensors::open_hf_folder(path, pool);
    REQUIRE(opened);
    CHECK(opened->tensors.size() == 2);
    CHECK(opened->index->total_size == 7);
  }
  folder.write(name, index_of({{"x", "1.safetensors"}, {"y", "gone.safetensors"}}));
  check_refused(folder.path(), errc::io, "y", {"gone.safetensors", name});
  folder.write(name, index_of({{"x", "2.safetensors"}, {"y", "1.safetensors"}}));
  check_refused(folder.path(), errc::missing_key, "x", {name, "2.safetensors", "it is in 1.safetensors"});
  folder.write(name, index_of({{"x", "1.safetensors"}, {"y", "2.safetensors"}, {"w", "2.safetensors"}}));
  check_refused(folder.path(), errc::missing_key, "w", {"2.safetensors"});
  folder.write(name, index_of({{"q", "stray.safetensors"}, {"x", "1.safetensors"}}));
  check_refused(folder.path(), errc::duplicate_key, "x", {"1.safetensors", "stray.safetensors"});
  folder.write(name, index_of({{"q", "stray.safetensors"}}));
  check_refused(folder.path(), errc::bad_format, "x", {"stray.safetensors", "does not name it"});
}

TEST_CASE("the one index of another name is used, two are refused") {
  const safetensors_files::temporary_folder folder;
  folder.write("1.safetensors", tensor_file({{"x", 2}}));
  folder.write("2.safetensors", tensor_file({{"x", 2}}));
  folder.write("diffusion.safetensors.index.json", index_of({{"x", "2.safetensors"}}));
  file_pool pool;
  const auto opened = safetensors::open_hf_folder(folder.path(), pool);
  REQUIRE(opened);
  CHECK(opened->files.size() == 1);
  folder.write("other.safetensors.index.json", index_of({{"x", "1.safetensors"}}));
  check_refused(folder.path(), errc::bad_format, "",
                {"diffusion.safetensors.index.json", "other.safetensors.index.json"});
}

TEST_CASE("an index that names nothing is right for a folder without tensors only") {
  const safetensors_files::temporary_folder folder;
  const std::string name(safetensors::hf_index_name);
  folder.write(name, index_of({}));
  folder.write("empty.safetensors", tensor_file({}));
  file_pool pool;
  const auto opened = safetensors::open_hf_folder(folder.path(), pool);
  REQUIRE(opened);
  CHECK(opened->tensors.empty());
  folder.write("model.safetensors", tensor_file({{"x", 2}, {"y", 2}}));
  check_refused(folder.path(), errc::bad_format, "", {name, "names no tensor", "2 tensors in model.safetensors"});
  check_refused(folder.path() / name, errc::bad_format, "", {name, "names no tensor"});
  folder.write(name, index_of({{"x", "empty.safetensors"}}));
  check_refused(folder.path() / name, errc::missing_key, "x", {name, "empty.safetensors"});
  // Opening the folder takes the whole model beside the index, as transformers does.
  const auto whole = safetensors::open_hf_folder(folder.path(), pool);
  REQUIRE(whole);
  CHECK(whole->files.size() == 1);
  CHECK(whole->tensors.size() == 2);
  CHECK(whole->set_aside == std::vector<std::string>{name, "empty.safetensors"});
}

TEST_CASE("of several copies of one model the canonical one is read and the others are named") {
  const safetensors_files::temporary_folder folder;
  const auto names = [&] {
    file_pool pool;
    const auto opened = safetensors::open_hf_folder(folder.path(), pool);
    REQUIRE(opened);
    std::vector<std::string> read;
    for (const safetensors::hf_file& file : opened->files) read.push_back(file.name);
    return std::pair(read, opened->set_aside);
  };
  using list = std::vector<std::string>;
  folder.write("model.safetensors", tensor_file({{"x", 2}, {"y", 2}}));
  folder.write("model.fp16.safetensors", tensor_file({{"x", 1}, {"y", 1}}));
  folder.write("model.fp16-00001-of-00002.safetensors", tensor_file({{"x", 1}}));
  folder.write("consolidated.00.safetensors", tensor_file({{"z", 1}}));
  folder.write("model-00001-of-00002.safetensors", tensor_file({{"x", 2}}));
  folder.write("adapter_model.safetensors", tensor_file({{"lora", 2}}));
  CHECK(names() == std::pair(list{"adapter_model.safetensors", "model.safetensors"},
                             list{"consolidated.00.safetensors", "model-00001-of-00002.safetensors",
                                  "model.fp16-00001-of-00002.safetensors", "model.fp16.safetensors"}));
  const auto reader = open_checkpoint(folder.path());
  REQUIRE(reader);
  REQUIRE((*reader)->warnings().size() == 1);
  const std::string warning = to_string((*reader)->warnings()[0]);
  CHECK(warning.starts_with(folder.path().string()));
  for (const char* word : {"consolidated.00.safetensors", "model.fp16.safetensors"})
    CHECK(warning.find(word) != std::string::npos);
  // Numbered parts are as canonical as a single file. Files that share no tensor form one model, whatever their names.
  fs::remove(folder.path() / "model.safetensors");
  folder.write("model.extra.safetensors", tensor_file({{"e", 2}}));
  CHECK(names() ==
        std::pair(
            list{"adapter_model.safetensors", "model-00001-of-00002.safetensors", "model.extra.safetensors"},
            list{"consolidated.00.safetensors", "model.fp16-00001-of-00002.safetensors", "model.fp16.safetensors"}));
}

TEST_CASE("a folder of variants without the canonical file stays an error that names them") {
  const safetensors_files::temporary_folder folder;
  folder.write("model.bf16.safetensors", tensor_file({{"x", 1}}));
  folder.write("model.fp16.safetensors", tensor_file({{"x", 1}}));
  check_refused(folder.path(), errc::duplicate_key, "x", {"model.bf16.safetensors", "model.fp16.safetensors"});
}

TEST_CASE("stems of file names") {
  for (const auto& [file, stem] : std::vector<std::pair<std::string, std::string>>{
           {"model.safetensors", "model"},
           {"adapter_model-00001-of-00012.safetensors", "adapter_model"},
           {"diffusion_pytorch_model.safetensors.index.json", "diffusion_pytorch_model"},
           {"shard-00001-model-00001-of-00001.safetensors", "model"},
           {"model.fp16.safetensors", "model.fp16"},
           {"a-0001-of-00002.safetensors", "a-0001-of-00002"},
           {"-00001-of-00002.safetensors", "model"},
           {"shard-1.safetensors", "shard-1"},
           {".safetensors", "model"},
           {std::string(230, 'n') + ".safetensors", "model"}})
    CHECK(safetensors::hf_stem_of(file) == stem);
  CHECK(safetensors::hf_index_name_of("model") == safetensors::hf_index_name);
}

TEST_CASE("a folder of checkpoints names them, two levels deep, and follows no links") {
  const safetensors_files::temporary_folder folder;
  for (const char* name : {"step-10", "runs/step-2", "runs/deep/hf", "hf", "empty"})
    fs::create_directories(folder.path() / name);
  folder.write("step-10/.metadata", "");
  folder.write("runs/step-2/__0_0.distcp", "");
  folder.write("runs/deep/hf/model.safetensors", "");
  folder.write("hf/model.safetensors", "");
  folder.write("empty/notes.txt", "");
  folder.write("model.pt", "");
  fs::create_directory_symlink("hf", folder.path() / "latest");
  const auto opened = open_checkpoint(folder.path());
  REQUIRE_FALSE(opened);
  CHECK(opened.error().code == errc::bad_format);
  CHECK(opened.error().file == folder.path().string());
  CHECK(opened.error().hint ==
        "it holds these: hf (hf), model.pt (torch), runs/step-2 (dcp), step-10 (dcp); "
        "open one by its name");
  for (int i = 100; i < 120; ++i) {
    fs::create_directory(folder.path() / std::to_string(i));
    folder.write(std::to_string(i) + "/.metadata", "");
  }
  CHECK(open_checkpoint(folder.path()).error().hint ==
        "it holds these: 100 (dcp), 101 (dcp), 102 (dcp), 103 (dcp), 104 (dcp), 105 (dcp), 106 (dcp), 107 (dcp), 108 "
        "(dcp), 109 (dcp) and 14 more; open one by its name");
  const auto nothing = open_checkpoint(folder.path() / "empty");
  REQUIRE_FALSE(nothing);
  CHECK(nothing.error().hint.empty());
  // Files are recognised by their first bytes: a pickle, a safetensors file, and an archive that is neither.
  folder.write("empty/best.pth.tar", std::string("\x80\x02}q\0.......", 12));
  folder.write("empty/weights.st", std::string("\x02\0\0\0\0\0\0\0{}", 10));
  folder.write("empty/other.zip", std::string("PK\x05\x06", 4) + std::string(18, '\0'));
  CHECK(open_checkpoint(folder.path() / "empty").error().hint ==
        "it holds these: best.pth.tar (torch), weights.st (safetensors); open one by its name");
}

TEST_CASE("an index that is broken or leaves the folder is refused") {
  const auto parse = [](const std::string& text) {
    const memory_source source(std::as_bytes(std::span(text)), "i.json");
    return safetensors::parse_hf_index(source);
  };
  for (const std::string file : {"../x.safetensors", "/etc/x", "a/b.safetensors", "..", ".", "", "a\\b"}) {
    const auto index = parse(index_of({{"w", file}}));
    REQUIRE_FALSE(index);
    CHECK(index.error().code == errc::unsafe_path);
    CHECK(index.error().key == "w");
    CHECK(index.error().file == "i.json");
  }
  for (const std::string text :
       {"", "[]", "1", "{", "{}", R"({"weight_map":[]})", R"({"weight_map":{"a":1}})", R"({"weight_map":{"a":{}}})",
        R"({"weight_map":{"a":["b"]}})", R"({"weight_map":{}}x)"}) {
    INFO(text);
    const auto index = parse(text);
    REQUIRE_FALSE(index);
    CHECK(index.error().code == errc::bad_format);
  }
  CHECK(parse(R"({"weight_map":{"a":"b","a":"c"}})").error().code == errc::duplicate_key);
  CHECK(parse(R"({"weight_map":{"a":"b"},"weight_map":{}})").error().code == errc::duplicate_key);
  const auto odd =
      parse(R"({"x":[{"weight_map":{"q":1}}],"metadata":{"total_size":"many","n":[1]},"weight_map":{"a":"b"}})");
  REQUIRE(odd);
  CHECK_FALSE(odd->total_size);
  CHECK(odd->weight_map == std::vector<std::pair<std::string, std::string>>{{"a", "b"}});
  CHECK(odd->unread == std::vector<std::string>{"x", "metadata.n"});
}

TEST_CASE("a note names the members of an index that no reader uses, except those that state sizes") {
  const safetensors_files::temporary_folder folder;
  folder.write("a.safetensors", tensor_file({{"x", 1}}));
  const auto notes_with = [&](const std::string& members) {
    folder.write("model.safetensors.index.json", "{" + members + R"("weight_map":{"x":"a.safetensors"}})");
    const auto reader = open_checkpoint(folder.path());
    INFO((reader ? "" : to_string(reader.error())));
    REQUIRE(reader);
    return (*reader)->notes();
  };
  CHECK(notes_with("").empty());
  CHECK(notes_with(R"("metadata":{"total_size":1,"total_parameters":1},)").empty());
  CHECK(notes_with(R"("metadata":{"total_size":1,"made_by":{"name":[1]}},"version":2,)") ==
        std::vector<std::string>{"not kept: members of the index: metadata.made_by, version"});
}

TEST_CASE("a written index is read back") {
  const std::vector<std::pair<std::string, std::string>> map{{"b\xC3\xA9", "model-00002-of-00002.safetensors"},
                                                             {"a", "model-00001-of-00002.safetensors"}};
  const std::string text = safetensors::write_hf_index(1234, map);
  CHECK(
      text.starts_with("{\n  \"metadata\": {\n    \"total_size\": 1234\n  },\n  \"weight_map\": {\n    \"a\": "
                       "\"model-00001-of-00002.safetensors\","));
  const memory_source source(std::as_bytes(std::span(text)), "i.json");
  const auto index = safetensors::parse_hf_index(source);
  REQUIRE(index);
  CHECK(index->total_size == 1234);
  CHECK(index->weight_map == std::vector<std::pair<std::string, std::string>>{map[1], map[0]});
}

TEST_CASE("sharding info must name every tensor of its file and fit its shape") {
  const safetensors_files::temporary_folder folder;
  folder.write("1.safetensors", tensor_file({{"x", 2}}, sharding(R"({"x":{"saved_offsets":[0]}})")));
  folder.write("2.safetensors",
               tensor_file({{"x", 3}}, sharding(R"({"x":{"saved_offsets":[2]},"elsewhere":{"saved_offsets":[]}})")));
  file_pool pool;
  const auto opened = safetensors::open_hf_folder(folder.path(), pool);
  REQUIRE(opened);
  CHECK(opened->tensors.front().shape == extents{5});
  const auto second = [&](const std::string& info) {
    folder.write("2.safetensors", tensor_file({{"x", 3}}, sharding(info)));
  };
  second(R"({"y":{"saved_offsets":[2]}})");
  check_refused(folder.path(), errc::missing_key, "x", {"2.safetensors", "DCP_SHARDING_INFO"});
  second(R"({"x":{"saved_offsets":[2,0]}})");
  check_refused(folder.path(), errc::shape_mismatch, "x", {"2.safetensors"});
  second(R"({"x":{"saved_offsets":[9223372036854775807]}})");
  check_refused(folder.path(), errc::overflow, "x", {"2.safetensors"});
  for (const std::string info : {"", "[]", R"({"x":[2]})", R"({"x":{}})", R"({"x":{"saved_offsets":[-1]}})",
                                 R"({"x":{"saved_offsets":["2"]}})"}) {
    second(info);
    INFO(info);
    file_pool again;
    const auto refused = safetensors::open_hf_folder(folder.path(), again);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == errc::bad_format);
    CHECK(refused.error().file.ends_with("2.safetensors"));
  }
}

TEST_CASE("parts of one tensor must agree in dtype and rank") {
  const safetensors_files::temporary_folder folder;
  folder.write("1.safetensors", tensor_file({{"x", 2}}, sharding(R"({"x":{"saved_offsets":[0]}})")));
  const auto second = [&](std::string_view entry, const std::string& offsets) {
    folder.write("2.safetensors",
                 safetensors_files::bytes(
                     fmt::format(R"({{"__metadata__":{},"x":{}}})",
                                 sharding(fmt::format(R"({{"x":{{"saved_offsets":{}}}}})", offsets)), entry),
                     2));
  };
  second(R"({"dtype":"I8","shape":[2],"data_offsets":[0,2]})", "[2]");
  check_refused(folder.path(), errc::dtype_mismatch, "x", {"1.safetensors", "2.safetensors", "uint8", "int8"});
  second(R"({"dtype":"U8","shape":[2,1],"data_offsets":[0,2]})", "[2,0]");
  check_refused(folder.path(), errc::shape_mismatch, "x", {"1.safetensors", "2.safetensors"});
}

TEST_CASE("tensors fill files in order up to the limit, larger ones get a file of their own") {
  // From huggingface_hub's docstring: 10 GB and [6, 6, 2, 6, 2, 2] give [6], [6, 2], [6, 2, 2].
  const std::vector<std::int64_t> sizes{6, 6, 2, 6, 2, 2};
  const auto plan = safetensors::plan_hf_shards(sizes, 10);
  REQUIRE(plan);
  CHECK(plan->file_of == std::vector<std::size_t>{0, 1, 1, 2, 2, 2});
  CHECK(plan->file_names == std::vector<std::string>{"model-00001-of-00003.safetensors",
                                                     "model-00002-of-00003.safetensors",
                                                     "model-00003-of-00003.safetensors"});
  CHECK(plan->total_size == 24);
  CHECK(plan->needs_index());
  // The large tensor gets its own file before the file in progress is closed, as in huggingface_hub.
  CHECK(safetensors::plan_hf_shards(std::vector<std::int64_t>{3, 11, 3}, 10)->file_of ==
        std::vector<std::size_t>{1, 0, 1});
  const auto one = safetensors::plan_hf_shards(sizes, 0);
  CHECK(one->file_names == std::vector<std::string>{"model.safetensors"});
  CHECK_FALSE(one->needs_index());
  CHECK(safetensors::plan_hf_shards({}, 5)->file_names == std::vector<std::string>{"model.safetensors"});
  CHECK(safetensors::plan_hf_shards(std::vector<std::int64_t>{INT64_MAX, 1}, 5).error().code == errc::overflow);
}
