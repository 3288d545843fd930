// SPDX-License-Identifier: Apache-2.0
// Tests the hyper-parameters that a mapping to llama.cpp's names takes from config.json and generation_config.json:
// their keys, numbers, and types, and the notes about those that are missing. Tokenizers are in model_tokenizers_test.
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "model_folder.hpp"

import shardmesh.checkpoint;
import shardmesh.gguf;
import shardmesh.mapping;

using namespace shardmesh;

namespace {

constexpr std::string_view llama_config = R"({
  "model_type": "llama", "vocab_size": 6, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
  "num_attention_heads": 8, "num_key_value_heads": 2, "max_position_embeddings": 512, "rms_norm_eps": 1e-05,
  "rope_theta": 500000.0
})";

}  // namespace

TEST_CASE("the hyper-parameters of a Llama model have llama.cpp's keys and types") {
  model_folder model;
  model.write("config.json", llama_config);
  const auto values = model.map("gguf.llama");
  CHECK(values.at("general.architecture") == "\"llama\"");
  CHECK(values.at("general.type") == "\"model\"");
  CHECK(values.at("llama.block_count") == "2");
  CHECK(values.at("llama.context_length") == "512");
  CHECK(values.at("llama.embedding_length") == "64");
  CHECK(values.at("llama.feed_forward_length") == "96");
  CHECK(values.at("llama.attention.head_count") == "8");
  CHECK(values.at("llama.attention.head_count_kv") == "2");
  CHECK(values.at("llama.rope.dimension_count") == "8");
  CHECK(values.at("llama.vocab_size") == "6");
  CHECK(fraction(values.at("llama.attention.layer_norm_rms_epsilon")) == static_cast<double>(1e-05F));
  CHECK(fraction(values.at("llama.rope.freq_base")) == 500000.0);
  CHECK_FALSE(values.contains("llama.attention.key_length"));  // no head_dim: llama.cpp computes it
  CHECK_FALSE(values.contains("llama.expert_count"));
  const auto& objects = model.reader->contents().objects;
  for (std::size_t i = 0; i < objects.size(); ++i) {
    INFO(objects[i].key);
    CHECK(model.reader->object_archive(i));
    CHECK(model.reader->content_of({false, i}));
  }
}

TEST_CASE("the values become metadata of a GGUF file with the types of llama.cpp") {
  model_folder model;
  model.write("config.json", llama_config);
  model.write("generation_config.json", R"({"top_k": 40, "top_p": 0.5, "temperature": 1, "mirostat": "no"})");
  model.map("gguf.llama");
  const std::filesystem::path file = model.folder / "model.gguf";
  REQUIRE(convert(*model.reader, file, {.format = target_format::gguf, .durable = false}));
  const auto reader = open_checkpoint(file).value();
  std::map<std::string, std::string> values;
  for (std::size_t i = 0; i < reader->contents().objects.size(); ++i)
    values[reader->contents().objects[i].key] = reader->read_object(i).value().json;
  CHECK(values.at("llama.block_count") == "2");
  CHECK(values.at("general.sampling.top_k") == "40");
  CHECK(fraction(values.at("general.sampling.top_p")) == 0.5);
  CHECK(fraction(values.at("general.sampling.temp")) == 1);
  CHECK_FALSE(values.contains("general.sampling.mirostat"));
  // The text lists the types that differ from a writer's choice: integers are uint32 otherwise.
  REQUIRE(reader->contents().texts.size() == 1);
  CHECK(reader->contents().texts[0].key == gguf::value_types_key);
  CHECK(reader->contents().texts[0].value == R"({"general.sampling.top_k":"int32"})");
}

TEST_CASE("a model type selects among the architectures of a convention") {
  model_folder model;
  model.write("config.json", R"({"model_type": "qwen2", "num_hidden_layers": 3})");
  CHECK(model.map("gguf.qwen3").at("qwen2.block_count") == "3");
  model.write("config.json", R"({"model_type": "qwen3", "num_hidden_layers": 3})");
  const auto values = model.map("gguf.qwen3");
  CHECK(values.at("qwen3.block_count") == "3");
  CHECK(values.at("qwen3.attention.key_length") == "128");  // the default of the configuration
}

TEST_CASE("members of text_config come before those around it") {
  model_folder model;
  model.write("config.json", R"({
    "model_type": "gemma3", "hidden_size": 1, "rms_norm_eps": 0.5,
    "text_config": {"model_type": "gemma3_text", "hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 96,
                    "sliding_window": 16, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}
  })");
  const auto values = model.map("gguf.gemma3");
  CHECK(values.at("gemma3.embedding_length") == "64");
  CHECK(values.at("gemma3.attention.head_count") == "8");
  CHECK(values.at("gemma3.attention.sliding_window") == "16");
  CHECK(fraction(values.at("gemma3.attention.layer_norm_rms_epsilon")) == 0.5);
  CHECK(values.at("gemma3.rope.scaling.type") == "\"linear\"");
  CHECK(fraction(values.at("gemma3.rope.scaling.factor")) == 8);
}

TEST_CASE("numbers of the user replace those of the configuration") {
  model_folder model;
  model.write("config.json", llama_config);
  model_sizes sizes = read_model_sizes(model.folder.path).value();
  sizes.given["num_hidden_layers"] = 7;
  const std::vector<mapping_rules> mappings{parse_mapping("left = 'own'\nright = 'gguf.llama'\n[sizes]\nn = "
                                                          "'num_hidden_layers'\n[rename]\n'embedding' = "
                                                          "'token_embd.weight'\n")
                                                .value()};
  const auto reader =
      map_checkpoint(open_checkpoint(model.folder / "model.safetensors").value(), mappings, sizes).value();
  const auto& objects = reader->contents().objects;
  std::string found;
  for (std::size_t i = 0; i < objects.size(); ++i)
    if (objects[i].key == "llama.block_count") found = reader->read_object(i).value().json;
  CHECK(found == "7");
}

TEST_CASE("missing and invalid numbers are named, and the other values are written") {
  model_folder model;
  model.write("config.json", R"({"model_type": "llama", "num_hidden_layers": 2, "hidden_size": -1, "head_dim": 8})");
  const auto values = model.map("gguf.llama");
  CHECK(values.at("llama.block_count") == "2");
  CHECK_FALSE(values.contains("llama.embedding_length"));
  CHECK(model.notes("llama.embedding_length (hidden_size is -1)"));
  CHECK(model.notes("llama.context_length (max_position_embeddings)"));
  CHECK(model.notes("llama.attention.layer_norm_rms_epsilon (rms_norm_eps)"));
}

TEST_CASE("a model of another type has no values, and a note names the types of the convention") {
  model_folder model;
  model.write("config.json", R"({"model_type": "granite", "num_hidden_layers": 2})");
  CHECK(model.map("gguf.qwen3").empty());
  CHECK(model.notes("'model_type' is 'granite', and the convention gguf.qwen3 is for qwen2, qwen3"));
  model.write("config.json", R"({"num_hidden_layers": 2})");
  CHECK(model.map("gguf.llama").empty());
  CHECK(model.notes("there is no 'model_type', and the convention gguf.llama is for llama, mistral"));
  CHECK(model.map("gguf.own").empty());
  CHECK(model.notes("the convention gguf.own has no known model"));
}

TEST_CASE("without a configuration, a note says how to name one") {
  model_folder model;
  CHECK(model.map("gguf.llama").empty());
  CHECK(model.notes("name one in the model's folder with --config"));
}

TEST_CASE("other conventions have no values of llama.cpp") {
  model_folder model;
  model.write("config.json", llama_config);
  CHECK(model.map("vllm.llama").empty());
  CHECK_FALSE(model.notes("llama.cpp"));
}

TEST_CASE("a scaling of positions becomes values, or a tensor of factors") {
  model_folder model;
  const auto config = [&](std::string_view scaling) {
    std::string text(llama_config);
    text.erase(text.rfind('}'));
    model.write("config.json", text + ", \"rope_scaling\": " + std::string(scaling) + "}");
    return model.map("gguf.llama");
  };
  const auto yarn =
      config(R"({"type": "yarn", "factor": 4, "original_max_position_embeddings": 128, "beta_fast": 32})");
  CHECK(yarn.at("llama.rope.scaling.type") == "\"yarn\"");
  CHECK(fraction(yarn.at("llama.rope.scaling.factor")) == 4);
  CHECK(yarn.at("llama.rope.scaling.original_context_length") == "128");
  CHECK(fraction(yarn.at("llama.rope.scaling.yarn_beta_fast")) == 32);
  CHECK_FALSE(yarn.contains("llama.rope.scaling.yarn_beta_slow"));

  CHECK(config(R"({"rope_type": "default"})").contains("llama.block_count"));
  CHECK_FALSE(model.notes("scaling"));
  config(R"({"rope_type": "dynamic", "factor": 2.0})");
  CHECK(model.notes("the scaling 'dynamic' of positions"));

  config(R"({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
             "original_max_position_embeddings": 8192})");
  // Heads of 8 elements: the wavelengths 2 pi 500000^(i / 8) of i = 0, 2, 4, 6 are 6.3, 167, 4443, and 118143.
  // The first two are shorter than 8192 / 4, and the last one is longer than 8192.
  const auto read = small_tensors::read_all(*model.reader).at("rope_freqs.weight");
  REQUIRE(read.values.size() == 4);
  CHECK(read.values[0] == 1);
  CHECK(read.values[1] == 1);
  const double wavelength = 2 * 3.141592653589793 * std::sqrt(500000.0), smooth = (8192 / wavelength - 1) / 3;
  CHECK(std::abs(static_cast<double>(read.values[2]) - 1 / ((1 - smooth) / 8 + smooth)) < 1e-6);
  CHECK(read.values[3] == 8);
}

TEST_CASE("the two lists of factors of a Phi 3 model become tensors") {
  model_folder model;
  const auto config = [&](std::string_view factors) {
    model.write("config.json", R"({"model_type": "phi3", "hidden_size": 16, "num_attention_heads": 4,
      "max_position_embeddings": 16384, "original_max_position_embeddings": 4096, "rope_theta": 10000.0,
      "rope_scaling": {"type": "longrope", "long_factor": )" +
                                   std::string(factors) + R"(, "short_factor": [1, 1]}})");
    return model.map("gguf.phi3");
  };
  const auto values = config("[1.5, 2]");
  CHECK(values.at("phi3.rope.dimension_count") == "4");
  CHECK(values.at("phi3.rope.scaling.original_context_length") == "4096");
  CHECK(values.at("phi3.attention.sliding_window") == "0");
  CHECK(std::abs(fraction(values.at("phi3.rope.scaling.attn_factor")) -
                 std::sqrt(1 + std::log(4.0) / std::log(4096.0))) < 1e-6);
  auto tensors = small_tensors::read_all(*model.reader);
  CHECK(tensors.at("rope_factors_long.weight").values == std::vector<float>{1.5F, 2});
  CHECK(tensors.at("rope_factors_short.weight").values == std::vector<float>{1, 1});
  config("[1.5, 2, 3]");
  CHECK(model.notes("rope_factors_long.weight, whose factors cannot be computed"));
  CHECK_FALSE(small_tensors::read_all(*model.reader).contains("rope_factors_long.weight"));
}

TEST_CASE("a vocabulary of another size than the embedding is named") {
  model_folder model(5);
  model.write("config.json", llama_config);
  model.map("gguf.llama");
  CHECK(model.notes("'vocab_size' is 6, and token_embd.weight has 5 rows"));
}
