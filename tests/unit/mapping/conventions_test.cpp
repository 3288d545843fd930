// SPDX-License-Identifier: Apache-2.0
// Tests the shipped mappings against the names and shapes of real models (tests/data/mapping, made by make.py there):
// each binds, makes exactly the tensors of the other convention, and refuses a checkpoint that lacks a tensor or has a
// stray one.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

import shardmesh.checkpoint;
import shardmesh.mapping;

using namespace shardmesh;

namespace {

using shapes = std::map<std::string, extents>;

// A model of one convention's file.
struct real_model {
  std::string name;
  model_sizes sizes;
  std::set<std::string> mappings;  // conventions to which it can be mapped
  shapes tensors;
};

// Adds the tensors of one entry: "{}" in its name stands for each number of a range.
void add_tensors(std::string_view name, const nlohmann::json& ranges, std::size_t range, const extents& shape,
                 std::string spelled, shapes& to) {
  const std::size_t brace = name.find("{}");
  spelled += name.substr(0, brace);
  if (brace == std::string_view::npos) {
    REQUIRE(range == ranges.size());
    REQUIRE(to.emplace(std::move(spelled), shape).second);
    return;
  }
  const auto bounds = ranges.at(range).get<std::vector<std::int64_t>>();
  REQUIRE(bounds.size() == 3);
  REQUIRE(bounds[2] > 0);
  for (std::int64_t i = bounds[0]; i <= bounds[1]; i += bounds[2])
    add_tensors(name.substr(brace + 2), ranges, range + 1, shape, spelled + std::to_string(i), to);
}

std::vector<real_model> models_of(const std::string& convention) {
  std::vector<real_model> made;
  // The data of hf.llama are in hf/llama.json.
  const std::size_t dot = convention.find('.');
  REQUIRE(dot != std::string::npos);
  const std::filesystem::path file = std::filesystem::path(SHARDMESH_TEST_DATA) / "mapping" /
                                     convention.substr(0, dot) / (convention.substr(dot + 1) + ".json");
  std::ifstream in(file);
  if (!in) return made;
  const auto parsed = nlohmann::json::parse(in);
  for (const auto& model : parsed.at("models")) {
    real_model one;
    one.name = model.at("name").get<std::string>();
    for (const auto& [key, value] : model.at("config").items())
      one.sizes.config[key] = value.is_boolean() ? (value.get<bool>() ? 1 : 0) : value.get<std::int64_t>();
    for (const auto& mapping : model.at("mappings")) one.mappings.insert(mapping.get<std::string>());
    for (const auto& tensor : model.at("tensors")) {
      extents shape;
      for (const auto& size : tensor.at("shape")) shape.push_back(size.get<std::int64_t>());
      add_tensors(tensor.at("name").get_ref<const std::string&>(), tensor.at("ranges"), 0, shape, "", one.tensors);
    }
    made.push_back(std::move(one));
  }
  return made;
}

const real_model* find_model(const std::vector<real_model>& models, const std::string& name) {
  const auto found =
      std::find_if(models.begin(), models.end(), [&](const real_model& model) { return model.name == name; });
  return found == models.end() ? nullptr : &*found;
}

catalog catalog_of(const shapes& tensors) {
  catalog made;
  for (const auto& [key, shape] : tensors) {
    tensor_entry one;
    one.key = key;
    one.type = dtype::bfloat16;
    one.shape = shape;
    made.tensors.push_back(std::move(one));
  }
  return made;
}

result<bound_mapping> bound(const std::string& from, const std::string& to, const shapes& tensors,
                            const model_sizes& sizes) {
  auto rules = find_mappings(from + ":" + to);
  if (!rules) return std::move(rules).error();
  REQUIRE(rules->size() == 1);
  return bind_mapping(rules->front(), catalog_of(tensors), sizes);
}

shapes made_by(const bound_mapping& mapping) {
  shapes made;
  for (const bound_tensor& tensor : mapping.tensors) CHECK(made.emplace(tensor.key, tensor.shape).second);
  return made;
}

// The source tensors without those that the mapping ignores or that are tied to others.
shapes used_by(const bound_mapping& mapping, const shapes& tensors) {
  const catalog source = catalog_of(tensors);
  shapes made = tensors;
  for (const unused_tensor& one : mapping.unused) made.erase(source.tensors[one.source].key);
  return made;
}

// Says where two sets of tensors differ first; empty: nowhere.
std::string first_difference(const shapes& made, const shapes& expected) {
  for (const auto& [key, shape] : made) {
    const auto other = expected.find(key);
    if (other == expected.end()) return key + " is made, but the model lacks it";
    if (other->second != shape) return key + " is " + to_string(shape) + " instead of " + to_string(other->second);
  }
  for (const auto& [key, shape] : expected)
    if (!made.contains(key)) return key + " is not made";
  return "";
}

// True if the mapping also fits without this tensor: it is the only source of an optional rule.
bool is_optional(const bound_mapping& mapping, std::size_t source) {
  return std::any_of(mapping.instances.begin(), mapping.instances.end(), [&](const bound_instance& instance) {
    return instance.sources.size() == 1 && instance.sources[0] == source && mapping.rule_of(instance).is_optional;
  });
}

}  // namespace

TEST_CASE("shipped mappings make exactly the tensors of the real models") {
  std::size_t compared = 0;
  for (const shipped_convention& mapping : shipped_conventions()) {
    const std::vector<real_model> others = models_of(mapping.right);
    std::size_t tried = 0;
    for (const real_model& model : models_of(mapping.left)) {
      if (!model.mappings.contains(mapping.right)) continue;
      ++tried;
      INFO(mapping.left << ":" << mapping.right << ", " << model.name);
      const auto there = bound(mapping.left, mapping.right, model.tensors, model.sizes);
      INFO((there ? std::string() : to_string(there.error())));
      REQUIRE(there);
      const shapes made = made_by(*there);
      const auto back = bound(mapping.right, mapping.left, made, model.sizes);
      INFO((back ? std::string() : to_string(back.error())));
      REQUIRE(back);
      CHECK(first_difference(made_by(*back), used_by(*there, model.tensors)) == "");
      const real_model* const other = find_model(others, model.name);
      if (other == nullptr) continue;
      ++compared;
      const auto inverse = bound(mapping.right, mapping.left, other->tensors, model.sizes);
      INFO((inverse ? std::string() : to_string(inverse.error())));
      REQUIRE(inverse);
      CHECK(first_difference(made, used_by(*inverse, other->tensors)) == "");
      CHECK(first_difference(made_by(*inverse), used_by(*there, model.tensors)) == "");
    }
    INFO(mapping.left << ":" << mapping.right << " has no model: add one to tests/data/mapping/make.py");
    CHECK(tried > 0);
  }
  CHECK(compared > 50);
}

TEST_CASE("shipped mappings refuse a real model that lacks a tensor, or has one more") {
  constexpr std::size_t most_samples = 7;
  for (const shipped_convention& mapping : shipped_conventions()) {
    std::vector<real_model> models = models_of(mapping.left);
    std::erase_if(models, [&](const real_model& model) { return !model.mappings.contains(mapping.right); });
    if (models.empty()) continue;  // the test above reports it
    const real_model& model =
        *std::min_element(models.begin(), models.end(),
                          [](const real_model& a, const real_model& b) { return a.tensors.size() < b.tensors.size(); });
    INFO(mapping.left << ":" << mapping.right << ", " << model.name);
    shapes more = model.tensors;
    more.emplace("model.layers.0.stray.weight", extents{2});
    const auto stray = bound(mapping.left, mapping.right, more, model.sizes);
    REQUIRE_FALSE(stray);
    CHECK(stray.error().code == errc::missing_key);
    CHECK(stray.error().key == "model.layers.0.stray.weight");
    const auto whole = bound(mapping.left, mapping.right, model.tensors, model.sizes);
    REQUIRE(whole);
    const catalog source = catalog_of(model.tensors);
    std::set<std::size_t> unused;
    for (const unused_tensor& one : whole->unused) unused.insert(one.source);
    const std::size_t step = source.tensors.size() / most_samples + 1;
    for (std::size_t i = step / 2; i < source.tensors.size(); i += step) {
      const std::string& key = source.tensors[i].key;
      if (unused.contains(i) || is_optional(*whole, i)) continue;
      INFO("without " << key);
      shapes fewer = model.tensors;
      fewer.erase(key);
      const auto refused = bound(mapping.left, mapping.right, fewer, model.sizes);
      REQUIRE_FALSE(refused);
      CHECK(refused.error().code == errc::missing_key);
      CHECK(refused.error().key == key);
      CHECK(refused.error().problem_count() == 1);
    }
  }
}

TEST_CASE("a configuration of another pattern of layers is refused, not mapped wrongly") {
  const std::vector<real_model> models = models_of("hf.deepseek-v3");
  const real_model* const model = find_model(models, "without q_lora");
  REQUIRE(model != nullptr);
  model_sizes sizes = model->sizes;
  sizes.config["first_k_dense_replace"] = 2;  // the model has one dense layer
  const auto refused = bound("hf.deepseek-v3", "megatron.deepseek-v3", model->tensors, sizes);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::missing_key);
  CHECK(refused.error().problem_count() > 1);
}

TEST_CASE("models whose heads a shipped mapping would permute wrongly are refused in both directions") {
  struct refused_model {
    std::string left, right, model, number;
    std::int64_t value;
  };
  const std::string part = "partial_rotary_factor.fraction", rope_part = "rope_parameters." + part;
  std::vector<refused_model> cases;
  for (const char* const right : {"gguf.llama", "meta.llama", "torchtitan.llama3"})
    for (const std::string& number : {part, rope_part, std::string("model_type.gemma")})
      cases.push_back({"hf.llama", right, "", number, 1});
  cases.push_back({"hf.llama", "gguf.qwen3", "", "model_type.gemma", 1});
  for (const char* const right : {"gguf.deepseek-v3", "torchtitan.deepseek-v3", "megatron.deepseek-v3",
                                  "megatron.deepseek-v3-sequential", "vllm.deepseek-v3"})
    cases.push_back({"hf.deepseek-v3", right, "without q_lora", "rope_interleave", 0});
  for (const refused_model& one : cases) {
    INFO(one.left << ":" << one.right << ", " << one.number);
    const std::vector<real_model> models = models_of(one.left);
    const auto model = std::find_if(models.begin(), models.end(), [&](const real_model& each) {
      return one.model.empty() ? each.mappings.contains(one.right) : each.name == one.model;
    });
    REQUIRE(model != models.end());
    const auto there = bound(one.left, one.right, model->tensors, model->sizes);
    REQUIRE(there);
    model_sizes sizes = model->sizes;
    sizes.config[one.number] = one.value;
    for (const bool is_inverse : {false, true}) {
      const auto refused = is_inverse ? bound(one.right, one.left, made_by(*there), sizes)
                                      : bound(one.left, one.right, model->tensors, sizes);
      REQUIRE_FALSE(refused);
      CHECK(refused.error().code == errc::unsupported);
      CHECK(refused.error().expected.find(one.number) != std::string::npos);
      CHECK(refused.error().problem_count() == 1);
    }
  }
}

TEST_CASE("the copy of a tied embedding in Megatron's last pipeline stage is left out with a reason") {
  const std::string copy = "output_layer.weight", embedding = "embedding.word_embeddings.weight";
  for (const shipped_convention& mapping : shipped_conventions()) {
    if (!mapping.right.starts_with("megatron.")) continue;
    INFO(mapping.left << ":" << mapping.right);
    const std::vector<real_model> models = models_of(mapping.left);
    const auto model = std::find_if(models.begin(), models.end(),
                                    [&](const real_model& one) { return one.mappings.contains(mapping.right); });
    REQUIRE(model != models.end());
    model_sizes sizes = model->sizes;
    sizes.config["tie_word_embeddings"] = 1;
    shapes tied = model->tensors;
    tied.erase("lm_head.weight");
    const auto there = bound(mapping.left, mapping.right, tied, sizes);
    REQUIRE(there);
    shapes made = made_by(*there);
    REQUIRE(made.emplace(copy, made.at(embedding)).second);
    const auto back = bound(mapping.right, mapping.left, made, sizes);
    REQUIRE(back);
    REQUIRE(back->unused.size() == 1);
    CHECK(back->unused[0].reason == "tied to " + embedding);
    CHECK(first_difference(made_by(*back), used_by(*there, tied)) == "");
    made[copy] = extents{1};
    CHECK_FALSE(bound(mapping.right, mapping.left, made, sizes));
  }
}

TEST_CASE("layers of multi-token prediction are left out with a reason") {
  const std::vector<real_model> models = models_of("hf.deepseek-v3-mtp");
  const real_model* const model = find_model(models, "DeepSeek-V3");
  REQUIRE(model != nullptr);
  const auto there = bound("hf.deepseek-v3-mtp", "hf.deepseek-v3", model->tensors, model->sizes);
  REQUIRE(there);
  const catalog source = catalog_of(model->tensors);
  std::size_t of_layer = 0;
  for (const auto& [key, shape] : model->tensors) of_layer += key.starts_with("model.layers.61.") ? 1 : 0;
  CHECK(of_layer > 256 * 3);
  CHECK(there->unused.size() == of_layer);
  for (const unused_tensor& one : there->unused) {
    CHECK(source.tensors[one.source].key.starts_with("model.layers.61."));
    CHECK(one.reason == "multi-token prediction");
  }
}
