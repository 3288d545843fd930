// SPDX-License-Identifier: Apache-2.0
// Tests the files of Meta's model-parallel ranks (consolidated.00.pth and so on). Models of random sizes are cut as
// fairscale cuts them, and must be read whole. Files that contradict each other or params.json are refused by name.
#include <fmt/format.h>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <dice.hpp>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <map>
#include <memory>
#include <random_seed.hpp>
#include <scratch_folder.hpp>
#include <string>
#include <utility>
#include <vector>

#include "small_tensors.hpp"

import shardmesh.checkpoint;

using namespace shardmesh;
namespace fs = std::filesystem;
using small_tensors::counted;
using small_tensors::tensor;
using small_tensors::tensors;

namespace {

// A model, and how it is cut: the dimension of each tensor, or -1 for a copy in each file.
struct cut_model {
  tensors whole;
  std::map<std::string, int> dims;
  std::string params;

  void add(const std::string& key, int dim, const extents& shape) {
    whole[key] = counted(shape, 100.0F * static_cast<float>(whole.size()));
    dims[key] = dim;
  }
};

struct llama_sizes {
  std::int64_t model = 8, heads = 4, key_heads = 2, head = 2, width = 12, vocabulary = 16, layers = 1;
};

// Llama 3 cuts the rows of the embedding. Llama 1 and 2 cut its columns, and do not state the size of the vocabulary.
cut_model llama(const llama_sizes& of, bool is_third) {
  cut_model made;
  made.add("tok_embeddings.weight", is_third ? 0 : 1, {of.vocabulary, of.model});
  made.add("norm.weight", -1, {of.model});
  made.add("output.weight", 0, {of.vocabulary, of.model});
  made.add("rope.freqs", -1, {of.head});
  for (std::int64_t i = 0; i < of.layers; ++i) {
    const std::string layer = fmt::format("layers.{}.", i);
    made.add(layer + "attention.wq.weight", 0, {of.heads * of.head, of.model});
    made.add(layer + "attention.wk.weight", 0, {of.key_heads * of.head, of.model});
    made.add(layer + "attention.wv.weight", 0, {of.key_heads * of.head, of.model});
    made.add(layer + "attention.wo.weight", 1, {of.model, of.heads * of.head});
    made.add(layer + "feed_forward.w1.weight", 0, {of.width, of.model});
    made.add(layer + "feed_forward.w2.weight", 1, {of.model, of.width});
    made.add(layer + "feed_forward.w3.weight", 0, {of.width, of.model});
    made.add(layer + "attention_norm.weight", -1, {of.model});
    made.add(layer + "ffn_norm.weight", -1, {of.model});
  }
  made.params = fmt::format(R"({{"dim": {}, "n_heads": {}, "n_kv_heads": {}, "head_dim": {}, "vocab_size": {}}})",
                            of.model, of.heads, of.key_heads, of.head, is_third ? of.vocabulary : -1);
  return made;
}

void write_text(const fs::path& file, const std::string& text) {
  std::ofstream(file, std::ios::binary) << text;
}

void write_file(const fs::path& file, tensors& all) {
  std::vector<save_tensor> saved;
  for (auto& [key, one] : all) {
    save_tensor made{key, {}, one.shape, {}};
    made.parts.push_back({box::whole(one.shape), small_tensors::view_of(one), 0});
    saved.push_back(std::move(made));
  }
  save(file, saved, target_format::pt, {.durable = false}).value();
}

fs::path file_of(const fs::path& folder, std::int64_t rank) {
  return folder / fmt::format("consolidated.{:02}.pth", rank);
}

// The part of one rank, cut by hand.
tensors part_of(cut_model& model, std::int64_t rank, std::int64_t ranks) {
  tensors made;
  for (auto& [key, one] : model.whole) {
    box where = box::whole(one.shape);
    if (const int dim = model.dims.at(key); dim >= 0) {
      const auto d = static_cast<std::size_t>(dim);
      where.sizes[d] /= ranks;
      where.offsets[d] = rank * where.sizes[d];
    }
    made[key] = small_tensors::part_of(one, where);
  }
  return made;
}

void write_folder(const fs::path& folder, cut_model& model, std::int64_t ranks) {
  fs::create_directories(folder);
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    tensors part = part_of(model, rank, ranks);
    write_file(file_of(folder, rank), part);
  }
  write_text(folder / "params.json", model.params);
}

// Changes one file of a folder.
template <class Change>
void change_file(const fs::path& folder, cut_model& model, std::int64_t rank, std::int64_t ranks, Change change) {
  tensors part = part_of(model, rank, ranks);
  change(part);
  fs::remove(file_of(folder, rank));
  write_file(file_of(folder, rank), part);
}

void check_refused(const fs::path& folder, errc code, const std::string& key, const std::string& file,
                   std::initializer_list<const char*> words) {
  const auto opened = open_checkpoint(folder);
  REQUIRE_FALSE(opened);
  const std::string line = to_string(opened.error());
  INFO(line);
  CHECK(opened.error().code == code);
  CHECK(opened.error().key == key);
  CHECK(opened.error().file == (folder / file).string());
  for (const char* const word : words) CHECK(line.find(word) != std::string::npos);
}

}  // namespace

TEST_CASE("models of random sizes in the files of Meta's ranks are read whole") {
  const std::uint64_t seed = random_seed::seed();
  for (std::uint64_t round = 0; round < random_seed::rounds(20); ++round) {
    INFO("SHARDMESH_SEED=" << seed << ", round " << round);
    dice roll(seed + round);
    const std::int64_t ranks = 1 + roll.below(4);
    llama_sizes sizes;
    sizes.head = 1 + roll.below(3);
    sizes.key_heads = ranks * (1 + roll.below(2));
    sizes.heads = sizes.key_heads * (1 + roll.below(2));
    sizes.model = ranks * (1 + roll.below(4));
    sizes.width = ranks * (1 + roll.below(5));
    sizes.vocabulary = ranks * (1 + roll.below(6));
    sizes.layers = roll.below(3);
    cut_model model = llama(sizes, roll.one_in(2));
    const scratch_folder scratch;
    const fs::path folder = scratch / "model";
    write_folder(folder, model, ranks);
    const auto reader = open_checkpoint(folder);
    if (!reader) FAIL(to_string(reader.error()));
    CHECK((*reader)->contents().format == checkpoint_format::torch_files);
    CHECK((*reader)->problems().empty());
    CHECK((*reader)->warnings().empty());
    CHECK(small_tensors::read_all(**reader) == model.whole);
  }
}

TEST_CASE("each file's part of a merged tensor is one chunk, and a copy is the first file's") {
  const scratch_folder scratch;
  const fs::path folder = scratch / "model";
  cut_model model = llama({}, true);
  write_folder(folder, model, 2);
  const auto reader = open_checkpoint(folder).value();
  const catalog& contents = reader->contents();
  CHECK(contents.files == std::vector<std::string>{"consolidated.00.pth", "consolidated.01.pth"});
  const auto boxes_of = [&](const char* key) {
    const tensor_entry* const found = contents.find(key);
    REQUIRE(found != nullptr);
    std::vector<std::pair<std::int32_t, box>> made;
    for (std::int32_t i = found->first_chunk; i < found->first_chunk + found->chunk_count; ++i)
      made.emplace_back(contents.chunk_places[static_cast<std::size_t>(i)].file, contents.chunk_box(*found, i));
    return made;
  };
  using boxes = std::vector<std::pair<std::int32_t, box>>;
  CHECK(boxes_of("layers.0.attention.wq.weight") == boxes{{0, {{0, 0}, {4, 8}}}, {1, {{4, 0}, {4, 8}}}});
  CHECK(boxes_of("layers.0.attention.wo.weight") == boxes{{0, {{0, 0}, {8, 4}}}, {1, {{0, 4}, {8, 4}}}});
  CHECK(boxes_of("norm.weight") == boxes{{0, {{0}, {8}}}});
}

TEST_CASE("blocks of Llama 4's fused tensors are merged one by one") {
  const scratch_folder scratch;
  const fs::path folder = scratch / "model";
  fs::create_directories(folder);
  // Two files, four query heads and two key heads of one element, two experts.
  write_text(folder / "params.json",
             R"({"dim": 4, "n_heads": 4, "n_kv_heads": 2, "vocab_size": 2, "moe_args": {"num_experts": 2}})");
  const std::string layer = "layers.0.";
  tensors whole{{layer + "attention.wqkv.weight", counted({8, 4})},
                {layer + "feed_forward.mlp.fc1_weight", counted({8, 4}, 100)},
                {layer + "feed_forward.experts.moe_w_out_eF_D", counted({12, 4}, 200)},
                {layer + "feed_forward.experts.moe_w_in_eD_F", counted({8, 6}, 300)},
                {layer + "feed_forward.router_DE", counted({4, 2}, 400)}};
  // The rows of the first rank's part; the others are the second rank's.
  const std::map<std::string, std::vector<std::int64_t>> rows{
      {layer + "attention.wqkv.weight", {0, 1, 4, 6}},
      {layer + "feed_forward.mlp.fc1_weight", {0, 1, 4, 5}},
      {layer + "feed_forward.experts.moe_w_out_eF_D", {0, 1, 2, 6, 7, 8}}};
  for (std::int64_t rank = 0; rank < 2; ++rank) {
    tensors part;
    for (auto& [key, one] : whole) {
      const auto listed = rows.find(key);
      if (listed == rows.end()) {
        box where = box::whole(one.shape);
        if (key.ends_with("moe_w_in_eD_F")) where = {{0, 3 * rank}, {8, 3}};
        part[key] = small_tensors::part_of(one, where);
        continue;
      }
      tensor made{{one.shape[0] / 2, one.shape[1]}, {}};
      for (std::int64_t row = 0; row < one.shape[0]; ++row) {
        bool is_first = false;
        for (const std::int64_t first : listed->second) is_first |= first == row;
        if (is_first != (rank == 0)) continue;
        const tensor line = small_tensors::part_of(one, {{row, 0}, {1, one.shape[1]}});
        made.values.insert(made.values.end(), line.values.begin(), line.values.end());
      }
      part[key] = made;
    }
    write_file(file_of(folder, rank), part);
  }
  const auto reader = open_checkpoint(folder);
  if (!reader) FAIL(to_string(reader.error()));
  CHECK(small_tensors::read_all(**reader) == whole);
}

TEST_CASE("files that have no entry in common are one model, without params.json") {
  const scratch_folder scratch;
  tensors first{{"a", counted({2, 3})}}, second{{"b", counted({4}, 10)}};
  write_file(scratch / "consolidated.00.pt", first);
  write_file(scratch / "consolidated.01.pt", second);
  const auto reader = open_checkpoint(scratch.path).value();
  CHECK(small_tensors::read_all(*reader) == tensors{{"a", first["a"]}, {"b", second["b"]}});
  REQUIRE(reader->notes().size() == 1);
  CHECK(reader->notes()[0].find("nothing is merged") != std::string::npos);
}

TEST_CASE("files that have no entry in common have the shapes of params.json, if there is one") {
  const scratch_folder scratch;
  const fs::path folder = scratch / "model";
  cut_model model = llama({}, false);
  write_folder(folder, model, 2);
  tensors other{{"b", counted({4})}};
  fs::remove(file_of(folder, 1));
  write_file(file_of(folder, 1), other);
  check_refused(folder, errc::shape_mismatch, "layers.0.attention.wk.weight", "consolidated.00.pth",
                {"[4, 8]", "[2, 8]", "all files"});
  // The size of the vocabulary, which params.json does not state, is that of the embedding in the second file.
  tensors rest = model.whole;
  other["tok_embeddings.weight"] = rest["tok_embeddings.weight"];
  rest.erase("tok_embeddings.weight");
  for (const std::int64_t rank : {0, 1}) {
    fs::remove(file_of(folder, rank));
    write_file(file_of(folder, rank), rank == 0 ? rest : other);
  }
  const auto reader = open_checkpoint(folder);
  INFO((reader ? "" : to_string(reader.error())));
  REQUIRE(reader);
  CHECK((*reader)->contents().tensors.size() == model.whole.size() + 1);
  CHECK((*reader)->warnings().empty());
}

TEST_CASE("a folder of consolidated files that lacks a number, or has one twice, is refused") {
  const scratch_folder scratch;
  const fs::path folder = scratch / "model";
  cut_model model = llama({}, true);
  write_folder(folder, model, 2);
  fs::copy_file(file_of(folder, 1), folder / "consolidated.01.pt");
  check_refused(folder, errc::duplicate_key, "", "consolidated.01.pth", {"consolidated.01.pt"});
  fs::remove(folder / "consolidated.01.pt");
  fs::rename(file_of(folder, 1), file_of(folder, 2));
  check_refused(folder, errc::incomplete_save, "", "consolidated.02.pth", {"number 01 is missing", "3 files", "2"});
  fs::rename(file_of(folder, 2), folder / "consolidated.1.pth");  // Meta writes two digits
  check_refused(folder, errc::shape_mismatch, "layers.0.attention.wk.weight", "consolidated.00.pth",
                {"[4, 8]", "[2, 8]", "all files"});
}

TEST_CASE("sizes of params.json that contradict the files are refused with the key") {
  const scratch_folder scratch;
  const fs::path folder = scratch / "model", params = folder / "params.json";
  cut_model model = llama({}, true);
  write_folder(folder, model, 2);
  const auto check = [&](const std::string& text, errc code, const std::string& key, const std::string& file,
                         std::initializer_list<const char*> words) {
    INFO(text);
    write_text(params, text);
    check_refused(folder, code, key, file, words);
  };
  const std::string first = "consolidated.00.pth";
  const std::string heads = R"("n_heads": 4, "n_kv_heads": 2, "head_dim": 2, "vocab_size": 16)";
  check("[1]", errc::bad_format, "", "params.json", {"JSON object"});
  check("{" + heads + "}", errc::missing_key, "dim", "params.json", {"positive integer"});
  check(R"({"dim": "8", )" + heads + "}", errc::missing_key, "dim", "params.json", {"positive integer"});
  check(R"({"dim": 8})", errc::missing_key, "n_heads", "params.json", {"positive integer"});
  check(R"({"dim": 8, "n_heads": 3})", errc::bad_format, "n_heads", "params.json", {"does not divide"});
  check(R"({"dim": 8, "n_heads": 1000000000000, "head_dim": 1000000000000})", errc::overflow, "n_heads", "params.json",
        {"implausibly large"});
  check(R"({"dim": 8, "n_heads": 4, "n_kv_heads": 1, "vocab_size": 16})", errc::unsupported, "n_kv_heads",
        "params.json", {"2 files", "a multiple of 2", "found 1"});
  check(R"({"dim": 8, "n_heads": 4, "n_kv_heads": 4, "vocab_size": 16})", errc::shape_mismatch,
        "layers.0.attention.wk.weight", first, {"[8, 8]", "[4, 8]"});
  check(R"({"dim": 8, "n_heads": 4, "n_kv_heads": 2, "vocab_size": 17})", errc::shape_mismatch, "output.weight", first,
        {"[17, 8]", "[16, 8]"});
  check(R"({"dim": 8, "n_heads": 4, "n_kv_heads": 2, "vocab_size": -1})", errc::missing_key, "output.weight", first,
        {"vocab_size"});
  // The formula of Llama 1 to 3 gives 21, rounded up to 24.
  check(R"({"dim": 8, "n_heads": 4, "n_kv_heads": 2, "vocab_size": 16, "multiple_of": 8})", errc::shape_mismatch,
        "layers.0.feed_forward.w1.weight", first, {"[24, 8]", "[12, 8]"});
  fs::remove(params);
  check_refused(folder, errc::missing_key, "", "params.json", {"does not exist"});
}

TEST_CASE("files that do not belong together are refused with the key and the file") {
  const scratch_folder scratch;
  const fs::path folder = scratch / "model";
  cut_model model = llama({}, true);
  model.add("layers.0.unknown", -1, {4});
  write_folder(folder, model, 2);
  const std::string second = "consolidated.01.pth";
  const auto check = [&](auto change, errc code, const std::string& key, std::initializer_list<const char*> words) {
    change_file(folder, model, 1, 2, change);
    check_refused(folder, code, key, second, words);
  };
  check([](tensors& part) { part["rope.freqs"].values[1] += 1; }, errc::disagreement, "rope.freqs",
        {"consolidated.00.pth", "differ"});
  check([](tensors& part) { part["layers.0.unknown"].values[0] = -1; }, errc::disagreement, "layers.0.unknown",
        {"consolidated.00.pth", "no rule"});
  check([](tensors& part) { part["layers.0.unknown"] = counted({5}); }, errc::shape_mismatch, "layers.0.unknown",
        {"[4]", "[5]"});
  check([](tensors& part) { part["layers.0.attention.wq.weight"] = counted({2, 8}); }, errc::shape_mismatch,
        "layers.0.attention.wq.weight", {"[4, 8]", "[2, 8]"});
  check([](tensors& part) { part.erase("norm.weight"); }, errc::missing_key, "norm.weight", {"consolidated.00.pth"});
  change_file(folder, model, 1, 2, [](tensors& part) { part["more"] = counted({1}); });
  check_refused(folder, errc::missing_key, "more", "consolidated.00.pth", {second.c_str()});
}

TEST_CASE("of norms that differ between the files, the first file's are read, and a warning names them") {
  const scratch_folder scratch;
  const fs::path folder = scratch / "model";
  cut_model model = llama({}, true);
  write_folder(folder, model, 2);
  change_file(folder, model, 1, 2, [](tensors& part) {
    part["norm.weight"].values[3] += 1;
    part["layers.0.ffn_norm.weight"].values[0] += 1;
  });
  const auto reader = open_checkpoint(folder).value();
  CHECK(reader->problems().empty());
  REQUIRE(reader->warnings().size() == 1);
  const std::string line = to_string(reader->warnings()[0]);
  INFO(line);
  for (const char* const word : {"2 tensors", "consolidated.00.pth", " norm.weight", "layers.0.ffn_norm.weight"})
    CHECK(line.find(word) != std::string::npos);
  CHECK(line.find("attention_norm") == std::string::npos);
  CHECK(small_tensors::read_all(*reader) == model.whole);
}

TEST_CASE("consolidated files that do not form one model are separate parts of their folder") {
  const scratch_folder scratch;
  const fs::path folder = scratch / "model";
  cut_model model = llama({}, true);
  write_folder(folder, model, 2);
  const auto whole = open_parts(folder).value();  // one checkpoint and nothing else
  CHECK(small_tensors::read_all(*whole) == model.whole);
  change_file(folder, model, 1, 2, [](tensors& part) { part["rope.freqs"].values[0] = -1; });
  const auto parts = open_parts(folder).value();
  CHECK(parts->problems().empty());
  REQUIRE(parts->warnings().size() == 1);
  CHECK(to_string(parts->warnings()[0]).find("rope.freqs: the consolidated files become separate parts") !=
        std::string::npos);
  tensors expected;
  for (std::int64_t rank = 0; rank < 2; ++rank)
    for (auto& [key, one] : part_of(model, rank, 2)) expected[fmt::format("consolidated.{:02}.{}", rank, key)] = one;
  expected["consolidated.01.rope.freqs"].values[0] = -1;
  CHECK(small_tensors::read_all(*parts) == expected);
}

TEST_CASE("consolidated files beside another checkpoint of the folder are a part with a name") {
  const scratch_folder scratch;
  const fs::path folder = scratch / "model";
  cut_model model = llama({}, true);
  write_folder(folder, model, 2);
  tensors other{{"other", counted({3})}};
  small_tensors::write(folder / "model.safetensors", other);
  CHECK(small_tensors::read_all(*open_checkpoint(folder).value()) == other);
  CHECK(small_tensors::read_all(*open_checkpoint(folder / "consolidated").value()) == model.whole);
}
