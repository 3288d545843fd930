// SPDX-License-Identifier: Apache-2.0
// Tests checkpoints of Megatron's older format with a file for each rank. Models of random sizes are cut for tensor and
// pipeline parallelism as Megatron cuts them, and must be read whole. Files that do not fit together are refused.
#include <fmt/format.h>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <dice.hpp>
#include <filesystem>
#include <functional>
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

enum class cut_kind { copy, rows, columns, halves };

struct cut_sizes {
  std::int64_t tensor_ranks = 1, pipeline_ranks = 1, chunks = 1;
  std::int64_t hidden = 4, queries = 6, width = 3, vocabulary = 5;  // those that are cut: for each rank
  bool is_gated = true;
  std::vector<std::int64_t> layers{1};  // of each stage, in the order of the model
};

// Tensors of the model or of a layer, with their cuts.
using cut_tensors = std::map<std::string, std::pair<extents, cut_kind>>;

cut_tensors layer_of(const cut_sizes& of) {
  const std::int64_t n = of.tensor_ranks, queries = n * of.queries, width = n * of.width;
  const std::int64_t rows = of.is_gated ? 2 * width : width;
  const cut_kind gates = of.is_gated ? cut_kind::halves : cut_kind::rows;
  return {{"self_attention.linear_qkv.layer_norm_weight", {{of.hidden}, cut_kind::copy}},
          {"self_attention.linear_qkv.weight", {{queries, of.hidden}, cut_kind::rows}},
          {"self_attention.linear_qkv.bias", {{queries}, cut_kind::rows}},
          {"self_attention.linear_proj.weight", {{of.hidden, queries}, cut_kind::columns}},
          {"self_attention.linear_proj.bias", {{of.hidden}, cut_kind::copy}},
          {"mlp.router.weight", {{2, of.hidden}, cut_kind::copy}},
          {"mlp.experts.linear_fc1.weight0", {{rows, of.hidden}, gates}},
          {"mlp.experts.linear_fc1.bias0", {{rows}, gates}},
          {"mlp.experts.linear_fc2.weight0", {{of.hidden, width}, cut_kind::columns}},
          {"mlp.experts.linear_fc2.bias0", {{of.hidden}, cut_kind::copy}},
          {"mlp.shared_experts.linear_fc1.weight", {{rows, of.hidden}, gates}},
          {"mlp.shared_experts.linear_fc2.weight", {{of.hidden, width}, cut_kind::columns}}};
}

tensor part_of(tensor& whole, cut_kind how, std::int64_t rank, std::int64_t ranks) {
  box where = box::whole(whole.shape);
  if (how == cut_kind::copy) return small_tensors::part_of(whole, where);
  const std::size_t dim = how == cut_kind::columns ? 1 : 0;
  where.sizes[dim] /= how == cut_kind::halves ? 2 * ranks : ranks;
  where.offsets[dim] = rank * where.sizes[dim];
  tensor made = small_tensors::part_of(whole, where);
  if (how != cut_kind::halves) return made;
  where.offsets[0] += whole.shape[0] / 2;
  const tensor second = small_tensors::part_of(whole, where);
  made.shape[0] *= 2;
  made.values.insert(made.values.end(), second.values.begin(), second.values.end());
  return made;
}

// The whole model under the names of the merged checkpoint, and the tensors of each rank's file.
struct cut_model {
  cut_sizes sizes;
  tensors whole;
  std::map<std::pair<std::int64_t, std::int64_t>, tensors> files;  // by the ranks of pipeline and tensor parallelism

  explicit cut_model(cut_sizes of) : sizes(std::move(of)) {
    std::int64_t layer = 0;
    const std::size_t stages = sizes.layers.size();
    for (std::size_t stage = 0; stage < stages; ++stage) {
      const auto chunk = static_cast<std::int64_t>(stage) / sizes.pipeline_ranks;
      const std::string root = sizes.chunks > 1 ? fmt::format("model{}.", chunk) : "model.";
      const std::int64_t rank = static_cast<std::int64_t>(stage) % sizes.pipeline_ranks;
      const auto add = [&](const std::string& name, const std::string& stored, const extents& shape, cut_kind how) {
        tensor& made = whole["model." + name] = counted(shape, 1000.0F * static_cast<float>(whole.size()));
        for (std::int64_t t = 0; t < sizes.tensor_ranks; ++t)
          files[{rank, t}][root + stored] = part_of(made, how, t, sizes.tensor_ranks);
      };
      const extents vocabulary{sizes.tensor_ranks * sizes.vocabulary, sizes.hidden};
      if (stage == 0) {
        const std::string name = "embedding.word_embeddings.weight";
        add(name, name, vocabulary, cut_kind::rows);
      }
      for (std::int64_t i = 0; i < sizes.layers[stage]; ++i, ++layer)
        for (const auto& [name, described] : layer_of(sizes))
          add(fmt::format("decoder.layers.{}.{}", layer, name), fmt::format("decoder.layers.{}.{}", i, name),
              described.first, described.second);
      if (stage + 1 < stages) continue;
      add("decoder.final_layernorm.weight", "decoder.final_layernorm.weight", {sizes.hidden}, cut_kind::copy);
      add("output_layer.weight", "output_layer.weight", vocabulary, cut_kind::rows);
    }
  }

  std::string folder_of(std::int64_t rank, std::int64_t tensor_rank) const {
    return sizes.pipeline_ranks > 1 ? fmt::format("mp_rank_{:02}_{:03}", tensor_rank, rank)
                                    : fmt::format("mp_rank_{:02}", tensor_rank);
  }

  void write(const fs::path& folder) {
    for (auto& [place, held] : files) {
      std::vector<save_tensor> saved;
      for (auto& [key, one] : held) {
        save_tensor made{key, {}, one.shape, {}};
        made.parts.push_back({box::whole(one.shape), small_tensors::view_of(one), 0});
        saved.push_back(std::move(made));
      }
      const fs::path of_rank = folder / folder_of(place.first, place.second);
      fs::create_directories(of_rank);
      save(of_rank / "model_optim_rng.pt", saved, target_format::pt, {.durable = false}).value();
    }
  }
};

void check_refused(cut_model model, errc code, std::initializer_list<const char*> words) {
  const scratch_folder scratch;
  model.write(scratch / "model");
  const auto opened = open_checkpoint(scratch / "model");
  REQUIRE_FALSE(opened);
  const std::string line = to_string(opened.error());
  INFO(line);
  CHECK(opened.error().code == code);
  CHECK(opened.error().file.find("model") != std::string::npos);
  for (const char* const word : words) CHECK(line.find(word) != std::string::npos);
}

cut_model of_ranks(std::int64_t tensor_ranks, std::int64_t pipeline_ranks) {
  cut_sizes sizes;
  sizes.tensor_ranks = tensor_ranks;
  sizes.pipeline_ranks = pipeline_ranks;
  sizes.layers.assign(static_cast<std::size_t>(pipeline_ranks), 2);
  return cut_model(sizes);
}

const std::string qkv = "model.decoder.layers.1.self_attention.linear_qkv.weight";

}  // namespace

TEST_CASE("models of random sizes in the files of Megatron's ranks are read whole") {
  const std::uint64_t seed = random_seed::seed();
  for (std::uint64_t round = 0; round < random_seed::rounds(20); ++round) {
    INFO("SHARDMESH_SEED=" << seed << ", round " << round);
    dice roll(seed + round);
    cut_sizes sizes;
    sizes.tensor_ranks = 1 + roll.below(4);
    sizes.pipeline_ranks = 1 + roll.below(3);
    if (sizes.tensor_ranks == 1 && sizes.pipeline_ranks == 1) sizes.tensor_ranks = 2;
    sizes.chunks = 1 + roll.below(3);
    sizes.hidden = 1 + roll.below(5);
    sizes.queries = 1 + roll.below(6);
    sizes.width = 1 + roll.below(4);
    sizes.vocabulary = 1 + roll.below(5);
    sizes.is_gated = roll.one_in(2);
    sizes.layers.clear();
    for (std::int64_t i = 0; i < sizes.pipeline_ranks * sizes.chunks; ++i) sizes.layers.push_back(roll.below(3));
    cut_model model(sizes);
    const scratch_folder scratch;
    model.write(scratch / "model");
    // A pipeline rank without layers has no file here; Megatron always writes one.
    if (static_cast<std::int64_t>(model.files.size()) != sizes.tensor_ranks * sizes.pipeline_ranks) continue;
    const auto reader = open_checkpoint(scratch / "model");
    if (!reader) FAIL(to_string(reader.error()));
    CHECK((*reader)->contents().format == checkpoint_format::torch_files);
    CHECK((*reader)->problems().empty());
    CHECK((*reader)->warnings().empty());
    CHECK(small_tensors::read_all(**reader) == model.whole);
  }
}

TEST_CASE("the entries of Megatron's ranks outside of the model keep the name of the rank's folder") {
  cut_model model = of_ranks(2, 1);
  for (std::int64_t rank = 0; rank < 2; ++rank)
    model.files[{0, rank}]["optimizer.state.0.exp_avg"] = counted({3}, static_cast<float>(rank));
  const scratch_folder scratch;
  model.write(scratch / "model");
  const auto reader = open_checkpoint(scratch / "model").value();
  tensors expected = model.whole;
  expected["mp_rank_00.optimizer.state.0.exp_avg"] = counted({3}, 0);
  expected["mp_rank_01.optimizer.state.0.exp_avg"] = counted({3}, 1);
  CHECK(small_tensors::read_all(*reader) == expected);
  REQUIRE_FALSE(reader->notes().empty());
  CHECK(reader->notes().back() ==
        "2 entries outside of the model belong to single ranks, and are not merged: mp_rank_00.KEY");
}

TEST_CASE("files of Megatron's ranks that do not fit together are refused") {
  const auto changed = [](cut_model model, const std::function<void(cut_model&)>& change) {
    change(model);
    return model;
  };
  check_refused(
      changed(of_ranks(2, 2), [](cut_model& m) { m.files.erase(std::pair<std::int64_t, std::int64_t>(1, 0)); }),
      errc::incomplete_save, {"tensor-parallel rank 0 of pipeline rank 1", "3 ranks"});
  check_refused(changed(of_ranks(2, 1), [](cut_model& m) { m.files[{0, 1}].erase(qkv); }), errc::missing_key,
                {qkv.c_str(), "mp_rank_01", "mp_rank_00"});
  check_refused(changed(of_ranks(2, 1), [](cut_model& m) { m.files[{0, 1}][qkv] = counted({5, 4}); }),
                errc::shape_mismatch, {qkv.c_str(), "mp_rank_01", "[5, 4]"});
  check_refused(changed(of_ranks(2, 1),
                        [](cut_model& m) { m.files[{0, 1}]["model.decoder.final_layernorm.weight"].values[0] = 9; }),
                errc::disagreement, {"model.decoder.final_layernorm.weight", "mp_rank_01"});
  // Without its first layer, the second one begins the stage.
  check_refused(changed(of_ranks(1, 2),
                        [](cut_model& m) {
                          std::erase_if(m.files[{1, 0}], [](const auto& one) {
                            return one.first.find("layers.0.") != std::string::npos;
                          });
                        }),
                errc::incomplete_save, {"mp_rank_00_001", "layer 1"});
  // Ranks of expert parallelism hold the whole model each.
  check_refused(changed(of_ranks(1, 2), [](cut_model& m) { m.files[{0, 0}] = m.files[{1, 0}]; }), errc::unsupported,
                {"decoder.final_layernorm.weight", "expert parallelism"});
  // With an expert tensor parallelism of 1, each rank has whole experts.
  check_refused(changed(of_ranks(2, 1),
                        [](cut_model& m) {
                          for (auto& [key, one] : m.files[{0, 1}])
                            if (key.find(".experts.") != std::string::npos) one = m.files[{0, 0}].at(key);
                        }),
                errc::unsupported, {".experts.", "mp_rank_01", "expert-tensor-parallel-size"});
  check_refused(changed(of_ranks(2, 1),
                        [](cut_model& m) {
                          for (std::int64_t rank = 0; rank < 2; ++rank)
                            m.files[{0, rank}]["model.decoder.layers.0.mlp.experts.weight1"] = counted({2, 2}, 5);
                        }),
                errc::unsupported, {"experts.weight1", "no rule"});
}
