// SPDX-License-Identifier: Apache-2.0
// Tests the metadata that a rewrite carries over: safetensors texts, side files, file stems, attributes of DCP
// metadata, and PyTorch 2.15's strides. Also tests what a rewrite leaves out and reports.
#include <fmt/format.h>
#include <catch2/catch_test_macros.hpp>
#include <gguf_files.hpp>
#include <nlohmann/json.hpp>
#include <safetensors_files.hpp>
#include <shardmesh/dtype.hpp>
#include <shardmesh/extents.hpp>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

import shardmesh.checkpoint_core;
import shardmesh.checkpoint;
import shardmesh.dcp;
import shardmesh.pickle;
import shardmesh.safetensors;
import shardmesh.storage;

using namespace shardmesh;
namespace fs = std::filesystem;

namespace {

using texts = std::map<std::string, std::string>;

std::string read_text(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// A file with one uint8 tensor [4] per name.
std::string tensor_file(const std::vector<std::string>& names, const texts& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::size_t end = 0;
  for (const std::string& name : names) {
    header[name] = {{"dtype", "U8"}, {"shape", {4}}, {"data_offsets", {end, end + 4}}};
    end += 4;
  }
  return safetensors_files::bytes(header.dump(), end);
}

// The texts of a file as any safetensors reader sees them, without our own keys.
texts texts_of(const fs::path& file) {
  file_pool pool;
  const auto source = pool.open(file).value();
  texts found;
  const safetensors::header header = safetensors::parse_header(*source).value();
  for (const auto& [key, value] : header.metadata)
    if (!key.starts_with("shardmesh.")) found.emplace(key, value);
  return found;
}

save_report convert_to(const fs::path& from, const fs::path& to, target_format format, selection_options selection = {},
                       std::int64_t max_shard_bytes = 5'000'000'000) {
  auto reader = open_checkpoint(from);
  REQUIRE(reader);
  convert_options options;
  options.format = format;
  options.selection = std::move(selection);
  options.max_shard_bytes = max_shard_bytes;
  auto report = convert(**reader, to, options);
  INFO((report ? "" : to_string(report.error())));
  REQUIRE(report);
  const auto written = open_checkpoint(to);
  REQUIRE(written);
  const verify_report verified = verify(**written).value();
  for (const error& problem : verified.problems) UNSCOPED_INFO(to_string(problem));
  CHECK(verified.ok());
  return *std::move(report);
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

dcp::metadata metadata_of(const fs::path& folder) {
  return dcp::parse_metadata(read_file(folder / ".metadata", 1 << 30).value(), "m").value();
}

std::vector<std::string> attribute_names(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& [name, value] : metadata_of(folder).extras.attributes) names.push_back(name);
  return names;
}

}  // namespace

TEST_CASE("the texts of a safetensors file go on to every format and come back from DCP") {
  const safetensors_files::temporary_folder folder;
  const texts said{{"format", "mlx"}, {"torchao_version", "0.9"}, {"long", std::string(3000, 'x')}, {"é", "\n\"'"}};
  const fs::path source = folder.write("a.safetensors", tensor_file({"x", "y"}, said)), at = folder.path();
  convert_to(source, at / "b.safetensors", target_format::safetensors,
             {.only = {key_pattern::exactly("x")}, .rename = {parse_rename_rule("x=z").value()}});
  CHECK(texts_of(at / "b.safetensors") == said);
  convert_to(source, at / "hf", target_format::hf, {}, 4);
  for (const char* name : {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"})
    CHECK(texts_of(at / "hf" / name) == said);
  convert_to(source, at / "dcp", target_format::dcp);
  convert_to(at / "dcp", at / "dcp2", target_format::dcp);
  convert_to(at / "dcp2", at / "c.safetensors", target_format::safetensors);
  CHECK(texts_of(at / "c.safetensors") == said);
  convert_to(at / "dcp2", at / "hf2", target_format::hf);
  CHECK(texts_of(at / "hf2" / "model.safetensors") == said);
}

TEST_CASE("a source without texts gets the format that readers ask for, and no others") {
  const safetensors_files::temporary_folder folder;
  const fs::path source = folder.write("a.safetensors", tensor_file({"x"}, {}));
  convert_to(source, folder.path() / "b.safetensors", target_format::safetensors);
  CHECK(texts_of(folder.path() / "b.safetensors") == texts{{"format", "pt"}});
  convert_to(source, folder.path() / "dcp", target_format::dcp);
  CHECK(attribute_names(folder.path() / "dcp").empty());
}

TEST_CASE("a target without texts names those of each kind of file, and GGUF's types of values by key") {
  const safetensors_files::temporary_folder folder;
  const auto notes_of = [&](const fs::path& source) {
    return convert_to(source, folder.path() / (source.stem().string() + ".pt"), target_format::pt).notes;
  };
  gguf_files::file file;
  constexpr std::uint32_t uint64 = 10;
  file.value("general.architecture", gguf_files::string, gguf_files::text("llama"));
  file.value("token.id", uint64, gguf_files::number(std::uint64_t{7}));
  file.value("token.count", gguf_files::uint32, gguf_files::number(std::uint32_t{7}));  // the type of a number like it
  file.value("shardmesh.text.who", gguf_files::string, gguf_files::text("me"));
  file.tensor("t", {4}, gguf_files::f32, 0);
  file.data = std::string(32, '\0');
  const std::string types = "not kept: types of GGUF metadata values: ";
  CHECK(notes_of(folder.write("a.gguf", file.bytes())) ==
        std::vector<std::string>{types + "token.id (uint64)", "not kept: texts of the GGUF file: who"});
  const texts carried{{"gguf.value_types", R"({"b":"int8","a":"float64","c":1})"}, {"who", "me"}, {"format", "pt"}};
  CHECK(notes_of(folder.write("b.safetensors", tensor_file({"x"}, carried))) ==
        std::vector<std::string>{types + "a (float64), b (int8)",
                                 "not kept: texts in the __metadata__ of safetensors files: who"});
  int number = 0;
  for (const std::string damaged : {"", "no JSON", "[]", "{}", R"({"a":1})"}) {
    const std::string name = std::to_string(++number) + ".safetensors";
    CHECK(notes_of(folder.write(name, tensor_file({"x"}, {{"gguf.value_types", damaged}}))) ==
          std::vector<std::string>{"not kept: texts in the __metadata__ of safetensors files: gguf.value_types"});
  }
}

TEST_CASE("texts that describe a file are not written into another, whatever the source is") {
  const safetensors_files::temporary_folder folder;
  gguf_files::file file;
  const std::string places = R"({"t":{"saved_offsets":[4]}})";
  file.value("shardmesh.text.DCP_SHARDING_INFO", gguf_files::string, gguf_files::text(places));
  file.value("shardmesh.text.DCP_VERSION", gguf_files::string, gguf_files::text("1.0"));
  file.value("shardmesh.text.shardmesh.xxh3", gguf_files::string, gguf_files::text("0"));
  file.value("shardmesh.text.shardmesh.objects", gguf_files::string, gguf_files::text("{}"));
  file.value("shardmesh.text.who", gguf_files::string, gguf_files::text("me"));
  file.tensor("t", {8}, gguf_files::f32, 0);
  file.data = std::string(32, '\0');
  const fs::path source = folder.write("a.gguf", file.bytes()), at = folder.path();
  convert_to(source, at / "a.safetensors", target_format::safetensors);
  CHECK(texts_of(at / "a.safetensors") == texts{{"format", "pt"}, {"who", "me"}});
  convert_to(source, at / "hf", target_format::hf);
  CHECK(texts_of(at / "hf" / "model.safetensors") == texts{{"format", "pt"}, {"who", "me"}});
  convert_to(source, at / "dcp", target_format::dcp);
  convert_to(at / "dcp", at / "b.safetensors", target_format::safetensors);
  CHECK(texts_of(at / "b.safetensors") == texts{{"format", "pt"}, {"who", "me"}});
  for (const char* made : {"a.safetensors", "hf", "b.safetensors"})
    CHECK(open_checkpoint(at / made).value()->contents().tensors.at(0).shape == extents{8});
}

TEST_CASE("a text that no header can hold is refused with the file that would have it") {
  const safetensors_files::temporary_folder folder;
  gguf_files::file file;
  file.value("shardmesh.text.who", gguf_files::string, gguf_files::text("\xff"));
  file.tensor("t", {8}, gguf_files::f32, 0);
  file.data = std::string(32, '\0');
  const auto source = open_checkpoint(folder.write("a.gguf", file.bytes())).value();
  for (const auto& [format, name, written] : {std::tuple{target_format::safetensors, "a.safetensors", "a.safetensors"},
                                              std::tuple{target_format::hf, "hf", "hf/model.safetensors"}}) {
    const auto refused = convert(*source, folder.path() / name, {.format = format});
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == errc::unsupported);
    CHECK(refused.error().file == (folder.path() / written).string());
  }
}

TEST_CASE("files of a folder keep their own texts, and where two meet the first stays with a note") {
  const safetensors_files::temporary_folder folder;
  const fs::path source = folder.path() / "source";
  fs::create_directory(source);
  folder.write("source/a.safetensors", tensor_file({"x"}, {{"part", "one"}, {"only a", "1"}, {"both", "same"}}));
  folder.write("source/b.safetensors", tensor_file({"y"}, {{"part", "two"}, {"both", "same"}}));
  folder.write("source/c.safetensors", tensor_file({}, {{"about", "no tensors"}}));
  const save_report apart = convert_to(source, folder.path() / "apart", target_format::hf, {}, 4);
  CHECK(apart.notes.empty());
  CHECK(texts_of(folder.path() / "apart" / "model-00001-of-00002.safetensors") ==
        texts{{"format", "pt"}, {"part", "one"}, {"only a", "1"}, {"both", "same"}, {"about", "no tensors"}});
  CHECK(texts_of(folder.path() / "apart" / "model-00002-of-00002.safetensors") ==
        texts{{"format", "pt"}, {"part", "two"}, {"both", "same"}});
  const std::string note =
      "files of the source differ in the metadata 'part': the first value is kept, not that of b.safetensors";
  for (const target_format to : {target_format::safetensors, target_format::dcp}) {
    const fs::path target = folder.path() / (to == target_format::dcp ? "dcp" : "one.safetensors");
    CHECK(convert_to(source, target, to).notes == std::vector<std::string>{note});
  }
  CHECK(texts_of(folder.path() / "one.safetensors") ==
        texts{{"format", "pt"}, {"part", "one"}, {"only a", "1"}, {"both", "same"}, {"about", "no tensors"}});
}

TEST_CASE("the side files of a Hugging Face folder are copied to another, everything else is named") {
  const safetensors_files::temporary_folder folder;
  const fs::path source = folder.path() / "repo" / "snapshots" / "abc", blobs = folder.path() / "repo" / "blobs";
  fs::create_directories(source / "onnx");
  fs::create_directory(blobs);
  const auto put = [](const fs::path& file, std::string_view text) { std::ofstream(file, std::ios::binary) << text; };
  put(source / "model.safetensors", tensor_file({"x"}, {}));
  const std::map<std::string, std::string> side{
      {"chat_template.jinja", "{{ x }}"},       {"config.json", R"({"model_type":"t"})"},
      {"generation_config.json", "{}"},         {"merges.txt", std::string(3'000'000, 'm')},
      {"spiece.model", std::string("\0\1", 2)}, {"tokenizer.json", ""}};
  for (const auto& [name, text] : side)
    if (name != "config.json") put(source / name, text);
  put(blobs / "123", side.at("config.json"));
  fs::create_symlink("../../blobs/123", source / "config.json");
  put(folder.path() / "secret", "key");
  fs::create_symlink(folder.path() / "secret", source / "vocab.json");
  fs::create_symlink("nowhere", source / "added_tokens.json");
  put(source / "pytorch_model.bin", "x");
  put(source / ".gitattributes", "x");
  put(source / "model.safetensors.index.fp16.json", "stale");
  const std::string left =
      "added_tokens.json (a link that leads elsewhere), onnx/, pytorch_model.bin, vocab.json (a link "
      "that leads elsewhere)";

  const std::string torch_files =
      source.string() +
      ": also has the model as files of torch.save, which are not read: pytorch_model.bin; open one "
      "of them by its name to read it";

  const fs::path out = folder.path() / "out";
  CHECK(convert_to(source, out, target_format::hf).notes ==
        std::vector<std::string>{torch_files, "not copied: " + left});
  std::vector<std::string> expected{".shardmesh_checksums", "model.safetensors"};
  for (const auto& [name, text] : side) {
    expected.push_back(name);
    CHECK(read_text(out / name) == text);
    CHECK_FALSE(fs::is_symlink(out / name));
  }
  std::sort(expected.begin(), expected.end());
  CHECK(names_in(out) == expected);

  CHECK(convert_to(source, folder.path() / "cast", target_format::hf, {.cast = {parse_cast_rule("x=int16").value()}})
            .notes == std::vector<std::string>{
                          torch_files, "not copied: " + left,
                          "config.json is copied as it is: a dtype that it names is the one from before the cast"});

  // The record of checksums covers the side files.
  put(out / "tokenizer.json", "changed");
  const auto changed = open_checkpoint(out).value();
  const verify_report report = verify(*changed).value();
  REQUIRE(report.problems.size() == 1);
  CHECK(report.problems[0].file == (out / "tokenizer.json").string());

  for (const target_format to : {target_format::safetensors, target_format::dcp}) {
    const fs::path target = folder.path() / (to == target_format::dcp ? "dcp" : "one.safetensors");
    const auto notes = convert_to(source, target, to).notes;
    REQUIRE(notes.size() == 2);
    CHECK(notes[0] == torch_files);
    CHECK(notes[1] ==
          "not copied: added_tokens.json (a link that leads elsewhere), chat_template.jinja, config.json, "
          "generation_config.json, merges.txt, onnx/, pytorch_model.bin, spiece.model, tokenizer.json, vocab.json (a "
          "link that leads elsewhere)");
  }
  CHECK(names_in(folder.path() / "dcp") ==
        std::vector<std::string>{".metadata", ".shardmesh_checksums", "__0_0.distcp"});
}

TEST_CASE("the side files of Megatron and Lightning go with a DCP folder, through convert and reshard") {
  const safetensors_files::temporary_folder folder;
  const fs::path source = folder.path() / "source";
  convert_to(folder.write("a.safetensors", tensor_file({"x"}, {})), source, target_format::dcp);
  for (const char* name : {"metadata.json", "meta.pt"})
    folder.write(std::string("source/") + name, std::string("content of ") + name);
  convert_to(folder.write("b.safetensors", tensor_file({"y"}, {})), source / "common.pt", target_format::pt);
  const std::string common = read_text(source / "common.pt");
  folder.write("source/events.out.tfevents", "x");
  const std::vector<std::string> note{"not copied: events.out.tfevents"};
  CHECK(convert_to(source, folder.path() / "copy", target_format::dcp).notes == note);
  auto reader = open_checkpoint(source).value();
  reshard_options options;
  options.mesh = parse_mesh("2").value();
  const auto resharded = reshard(*reader, folder.path() / "resharded", options);
  REQUIRE(resharded);
  std::vector<std::string> resharded_notes{"1 tensor matches no placement rule and is replicated on all 2 ranks: x"};
  resharded_notes.insert(resharded_notes.end(), note.begin(), note.end());
  CHECK(resharded->notes == resharded_notes);
  for (const char* to : {"copy", "resharded"}) {
    for (const char* name : {"metadata.json", "meta.pt"})
      CHECK(read_text(folder.path() / to / name) == std::string("content of ") + name);
    CHECK(read_text(folder.path() / to / "common.pt") == common);
    // The content of common.pt is not stored a second time as items.
    CHECK(metadata_of(folder.path() / to).contents.tensors.size() == 1);
  }
  CHECK(verify(*open_checkpoint(folder.path() / "resharded").value()).value().ok());
  // A destination that holds our side files can be replaced like any other.
  convert_options again;
  again.format = target_format::dcp;
  again.overwrite = true;
  const auto replaced = convert(*reader, folder.path() / "copy", again);
  INFO((replaced ? "" : to_string(replaced.error())));
  CHECK(replaced);
}

TEST_CASE("file stems are kept, with their index") {
  const safetensors_files::temporary_folder folder;
  const fs::path at = folder.path();
  for (const char* stem : {"adapter_model", "diffusion_pytorch_model", "pytorch_lora_weights", "my"}) {
    INFO(stem);
    const std::string name(stem);
    fs::create_directory(at / name);
    folder.write(name + "/" + name + ".safetensors", tensor_file({"x", "y"}, {}));
    convert_to(at / name, at / (name + "-one"), target_format::hf);
    CHECK(names_in(at / (name + "-one")) == std::vector<std::string>{".shardmesh_checksums", name + ".safetensors"});
    convert_to(at / name, at / (name + "-two"), target_format::hf, {}, 4);
    CHECK(names_in(at / (name + "-two")) ==
          std::vector<std::string>{".shardmesh_checksums", name + "-00001-of-00002.safetensors",
                                   name + "-00002-of-00002.safetensors", name + ".safetensors.index.json"});
    // With an index, then without one.
    convert_to(at / (name + "-two"), at / (name + "-three"), target_format::hf);
    CHECK(fs::exists(at / (name + "-three") / (name + ".safetensors")));
    fs::remove(at / (name + "-two") / (name + ".safetensors.index.json"));
    fs::remove(at / (name + "-two") / ".shardmesh_checksums");
    convert_to(at / (name + "-two"), at / (name + "-four"), target_format::hf);
    CHECK(fs::exists(at / (name + "-four") / (name + ".safetensors")));
  }
  convert_to(at / "adapter_model" / "adapter_model.safetensors", at / "from-file", target_format::hf);
  CHECK(fs::exists(at / "from-file" / "adapter_model.safetensors"));
  convert_to(at / "my" / "my.safetensors", at / "from-my", target_format::hf);
  CHECK(fs::exists(at / "from-my" / "model.safetensors"));
}

TEST_CASE("plans of the old layout are dropped when the layout changes, and carried when it does not") {
  const safetensors_files::temporary_folder folder;
  const fs::path at = folder.path();
  // Megatron's Metadata: plans found by name, plans of that class under another name, and an object that is not a plan.
  pickle::writer w;
  w.begin_dict();
  const auto plan = [&] {
    w.begin_list();
    w.global("torch.distributed.checkpoint.planner", "SavePlan");
    w.empty_tuple();
    w.newobj();
    w.end_list();
  };
  w.text("all_local_plans");
  w.none();
  w.text("all_global_plans");
  plan();
  w.text("cached_structure");
  w.begin_dict();
  w.text("rank 0");
  plan();
  w.end_dict();
  w.text("mcore_data");
  w.begin_dict();
  w.text("x");
  w.begin_dict();
  w.text("nd_reformulated_orig_global_shape");
  w.none();
  w.end_dict();
  w.end_dict();
  w.end_dict();
  dcp::extras extras;
  extras.version = "1.0.0";
  extras.graph = std::make_shared<const pickle::graph>(pickle::graph::parse(std::move(w).finish()).value());
  for (const auto [key, value] : extras.graph->root().pairs()) {
    extras.attributes.emplace_back(*key.text(), value);
    if (key.text() == "all_global_plans") extras.planner_entries.emplace_back("all_local_plans", value);
  }
  {
    folder.write("a.safetensors", tensor_file({"x"}, {}));
    const auto reader = open_checkpoint(at / "a.safetensors").value();
    conversion work = select_for_output(*reader, {});
    chunk_source source(*reader);
    REQUIRE(dcp::save(at / "source", std::move(work.tensors), work.objects, source, extras, {}));
  }
  const std::vector<std::string> all{"all_local_plans", "all_global_plans", "cached_structure", "mcore_data"};
  CHECK(attribute_names(at / "source") == all);

  CHECK(convert_to(at / "source", at / "same", target_format::dcp).notes.empty());
  CHECK(attribute_names(at / "same") == all);
  CHECK(metadata_of(at / "same").extras.planner_entries.size() == 1);

  const std::vector<std::string> notes{"all_local_plans of the metadata describes the old layout and is left out",
                                       "all_global_plans of the metadata describes the old layout and is left out",
                                       "cached_structure of the metadata describes the old layout and is left out",
                                       "all_local_plans of the planner data describes the old layout and is left out"};
  const auto reader = open_checkpoint(at / "source").value();
  reshard_options options;
  options.mesh = parse_mesh("2").value();
  options.default_placements = {placement::shard(0)};
  CHECK(plan_reshard(*reader, options).notes == notes);
  const auto resharded = reshard(*reader, at / "resharded", options);
  REQUIRE(resharded);
  CHECK(resharded->notes == notes);
  CHECK(attribute_names(at / "resharded") == std::vector<std::string>{"mcore_data"});
  CHECK(metadata_of(at / "resharded").extras.planner_entries.empty());
  // A cast or a rename also invalidates a plan.
  for (const selection_options& selection : {selection_options{.cast = {parse_cast_rule("x=int16").value()}},
                                             selection_options{.rename = {parse_rename_rule("x=y").value()}}}) {
    const fs::path to = at / (selection.rename.empty() ? "cast" : "renamed");
    CHECK(convert_to(at / "source", to, target_format::dcp, selection).notes == notes);
    CHECK(attribute_names(to) == std::vector<std::string>{"mcore_data"});
  }
}

TEST_CASE("a checkpoint of PyTorch 2.15 becomes one that older versions read, and its strides are kept while true") {
  const safetensors_files::temporary_folder folder;
  const fs::path golden = SHARDMESH_TEST_DATA "/golden/era_torch_2.15.0/checkpoint";
  const auto strides_of = [](const fs::path& from) {
    std::map<std::string, extents> found;
    const auto reader = open_checkpoint(from).value();
    for (const tensor_entry& tensor : reader->contents().tensors)
      if (tensor.properties.strides) found.emplace(tensor.key, *tensor.properties.strides);
    return found;
  };
  const std::map<std::string, extents> expected{
      {"dt", {2, 1}}, {"model.h", {4, 1}}, {"model.scalar", {}}, {"model.t", {1, 4}}};
  CHECK(strides_of(golden) == expected);
  convert_to(golden, folder.path() / "copy", target_format::dcp);
  CHECK(strides_of(folder.path() / "copy") == expected);
  convert_to(golden, folder.path() / "half", target_format::dcp,
             {.rename = {parse_rename_rule("dt=d").value()}, .cast = {parse_cast_rule("model\\.h=float32").value()}});
  CHECK(strides_of(folder.path() / "half") ==
        std::map<std::string, extents>{{"d", {2, 1}}, {"model.scalar", {}}, {"model.t", {1, 4}}});
  const auto reader = open_checkpoint(golden).value();
  reshard_options options;
  options.mesh = parse_mesh("2").value();
  options.default_placements = {placement::shard(0)};
  REQUIRE(reshard(*reader, folder.path() / "resharded", options));
  CHECK(strides_of(folder.path() / "resharded") == std::map<std::string, extents>{{"model.scalar", {}}});

  // The exact shape of the pickle: five fields, which PyTorch 2.13 unpacks and 2.15 accepts.
  const auto graph = pickle::graph::parse(read_file(folder.path() / "copy" / ".metadata", 1 << 20).value()).value();
  std::size_t tensors = 0;
  for (const auto [key, entry] : graph.root().attribute("state_dict_metadata").pairs()) {
    const pickle::value properties = entry.attribute("properties");
    if (!properties) continue;
    INFO(*key.text());
    ++tensors;
    CHECK(properties.is_record_of("torch.distributed.checkpoint.metadata", "TensorProperties"));
    const pickle::value state = properties.state();
    REQUIRE(state.kind() == pickle::kind::tuple);
    REQUIRE(state.size() == 5);
    CHECK(state.items()[0].global_module() == "torch");
    CHECK(state.items()[1].is_record_of("torch.serialization", "_get_layout"));
    CHECK(state.items()[2].as_bool() == false);
    CHECK(state.items()[3].is_record_of("torch.distributed.checkpoint.metadata", "_MEM_FORMAT_ENCODING"));
    CHECK(state.items()[4].as_bool() == false);
  }
  CHECK(tensors == 6);
}
