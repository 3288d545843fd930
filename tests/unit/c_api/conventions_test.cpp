// SPDX-License-Identifier: Apache-2.0
// Tests mappings between naming conventions through the C interface: a Llama under Megatron's names, whose fused
// tensors are computed here by hand, there and back; the sizes of the model; the list of mappings; and refusals.
#include <algorithm>
#include <c_answers.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <map>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using namespace c_answers;

namespace {

struct matrix {
  std::vector<std::int64_t> shape;
  std::vector<float> values;  // row-major
};
using model = std::map<std::string, matrix>;

// Two groups of two query heads, each of two rows; a hidden size of 4; one layer.
constexpr std::int64_t groups = 2, query_rows = 4, head_rows = 2, hidden = 4;
constexpr std::string_view config =
    R"({"hidden_size": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 2, "intermediate_size": 3,
        "num_hidden_layers": 1, "model_type": "llama", "rms_norm_eps": 1e-6})";
const std::string in_layer = "model.layers.0.";
const std::string fused_qkv = "decoder.layers.0.self_attention.linear_qkv.weight";
const std::string fused_gates = "decoder.layers.0.mlp.linear_fc1.weight";

model llama() {
  model made;
  float next = 0;
  const auto add = [&](const std::string& key, std::vector<std::int64_t> shape) {
    std::size_t count = 1;
    for (const std::int64_t size : shape) count *= static_cast<std::size_t>(size);
    std::vector<float> values(count);
    std::iota(values.begin(), values.end(), next);
    next += static_cast<float>(count);
    made[key] = {std::move(shape), std::move(values)};
  };
  add("model.embed_tokens.weight", {5, 4});
  add("model.norm.weight", {4});
  add("lm_head.weight", {5, 4});
  add(in_layer + "input_layernorm.weight", {4});
  add(in_layer + "post_attention_layernorm.weight", {4});
  add(in_layer + "self_attn.q_proj.weight", {8, 4});
  add(in_layer + "self_attn.k_proj.weight", {4, 4});
  add(in_layer + "self_attn.v_proj.weight", {4, 4});
  add(in_layer + "self_attn.o_proj.weight", {4, 8});
  add(in_layer + "mlp.gate_proj.weight", {3, 4});
  add(in_layer + "mlp.up_proj.weight", {3, 4});
  add(in_layer + "mlp.down_proj.weight", {4, 3});
  return made;
}

// The rows of a matrix of `hidden` columns.
void append_rows(std::vector<float>& to, const matrix& from, std::int64_t begin, std::int64_t count) {
  const auto first = from.values.begin() + begin * hidden;
  to.insert(to.end(), first, first + count * hidden);
}

std::vector<float> expected_qkv(const model& from) {
  std::vector<float> made;
  for (std::int64_t g = 0; g < groups; ++g) {
    append_rows(made, from.at(in_layer + "self_attn.q_proj.weight"), g * query_rows, query_rows);
    append_rows(made, from.at(in_layer + "self_attn.k_proj.weight"), g * head_rows, head_rows);
    append_rows(made, from.at(in_layer + "self_attn.v_proj.weight"), g * head_rows, head_rows);
  }
  return made;
}

std::vector<float> expected_gates(const model& from) {
  std::vector<float> made;
  append_rows(made, from.at(in_layer + "mlp.gate_proj.weight"), 0, 3);
  append_rows(made, from.at(in_layer + "mlp.up_proj.weight"), 0, 3);
  return made;
}

// Writes a safetensors file into the folder, and the configuration beside it if there is one.
std::string written(const scratch_folder& folder, const model& all, std::string_view beside = config) {
  std::vector<c::save_tensor> tensors;
  for (const auto& [key, one] : all) tensors.emplace_back(key, c::view(one.values.data(), one.shape));
  c::save_options options;
  options.format = SHARDMESH_FORMAT_SAFETENSORS;
  const std::string file = folder / "model.safetensors";
  c::save(file, tensors, options);
  if (!beside.empty()) std::ofstream(folder / "config.json") << beside;
  return file;
}

c::open_options mapped(const std::string& map) {
  c::open_options made;
  made.map = map;
  return made;
}

void check_equal(const c::checkpoint& from, const model& expected) {
  CHECK(from.summary().tensor_count == expected.size());
  for (const auto& [key, one] : expected) {
    CAPTURE(key);
    CHECK(from.tensor_at(from.find_tensor(key)).shape == one.shape);
    CHECK(from.load<float>(key) == one.values);
  }
}

c::error refusal(const std::string& path, const c::open_options& options) {
  const auto problems = problems_of([&] { c::checkpoint::open(path, options); });
  REQUIRE_FALSE(problems.empty());
  return problems[0];
}

bool says(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a Llama is shown under Megatron's names, with fused tensors, and converted there and back") {
  const scratch_folder folder;
  const model all = llama();
  const std::string file = written(folder, all);
  const c::checkpoint shown = c::checkpoint::open(file, mapped("hf.llama:megatron.gpt"));
  CHECK(shown.summary().tensor_count == 9);
  const std::vector<float> qkv = expected_qkv(all);
  CHECK(shown.tensor_at(shown.find_tensor(fused_qkv)).shape == std::vector<std::int64_t>{16, 4});
  CHECK(shown.load<float>(fused_qkv) == qkv);
  CHECK(shown.load<float>(fused_gates) == expected_gates(all));
  CHECK(shown.load<float>("decoder.layers.0.self_attention.linear_proj.weight") ==
        all.at(in_layer + "self_attn.o_proj.weight").values);
  CHECK(shown.load<float>("output_layer.weight") == all.at("lm_head.weight").values);
  // Rows 3 to 6 are of queries and keys.
  std::vector<float> part(static_cast<std::size_t>(4 * hidden));
  shown.load(std::vector<c::load_request>{{fused_qkv, c::view(part.data(), {4, hidden}), {3, 0}}});
  CHECK(part == std::vector<float>(qkv.begin() + 3 * hidden, qkv.begin() + 7 * hidden));

  c::convert(shown, folder / "megatron.safetensors");
  const c::checkpoint stored = c::checkpoint::open(folder / "megatron.safetensors");
  CHECK(stored.load<float>(fused_qkv) == qkv);
  check_equal(c::checkpoint::open(folder / "megatron.safetensors", mapped("megatron.gpt:hf.llama")), all);
}

TEST_CASE("a renamed tensor is mapped into memory, and a fused one is not: its bytes are in no file") {
  const scratch_folder folder;
  const model all = llama();
  const c::checkpoint shown = c::checkpoint::open(written(folder, all), mapped("hf.llama:megatron.gpt"));
  c::map_options options;
  options.allow_unaligned = true;
  const c::mapped_tensor renamed = c::map_tensor(shown, "output_layer.weight", options);
  CHECK(renamed.view().sizes == std::vector<std::int64_t>{5, 4});
  const auto refused = problems_of([&] { c::map_tensor(shown, fused_qkv, options); });
  REQUIRE(refused.size() == 1);
  CHECK(refused[0].status == SHARDMESH_UNSUPPORTED);
  CHECK(refused[0].key == fused_qkv);
}

TEST_CASE("the sizes of a model are those of a file, or are given") {
  const scratch_folder folder;
  const model all = llama();
  const std::string file = written(folder, all, "");
  const c::error unknown = refusal(file, mapped("hf.llama:megatron.gpt"));
  CHECK(unknown.status == SHARDMESH_MISSING_KEY);
  CHECK(says(unknown.what(), "num_hidden_layers"));

  std::ofstream(folder / "sizes.json") << config;
  c::open_options options = mapped("hf.llama:megatron.gpt");
  options.config = folder / "sizes.json";
  CHECK(c::checkpoint::open(file, options).load<float>(fused_qkv) == expected_qkv(all));

  options.config = "";
  options.sizes = {{"layer", 1}, {"g", 2}, {"r", 2}, {"d", 2}, {"h", 4}, {"f", 3}};
  CHECK(c::checkpoint::open(file, options).load<float>(fused_qkv) == expected_qkv(all));
  options.sizes.front().second = 2;  // layers
  const c::error missing = refusal(file, options);
  CHECK(missing.status == SHARDMESH_MISSING_KEY);
  CHECK(says(missing.key, "model.layers.1."));
}

TEST_CASE("the file of a mapping is applied in either direction") {
  const scratch_folder folder;
  const model all = llama();
  const std::string file = written(folder, all), rules = folder / "own.toml";
  std::ofstream(rules) << c::mapping_text("hf.llama:megatron.gpt");
  c::convert(c::checkpoint::open(file, mapped(rules)), folder / "megatron.safetensors");
  c::open_options back = mapped(rules);
  back.map_inverse = true;
  check_equal(c::checkpoint::open(folder / "megatron.safetensors", back), all);
}

TEST_CASE("tensors in memory are saved under Megatron's names in every format, and opened under their own") {
  const scratch_folder folder;
  const model all = llama();
  std::ofstream(folder / "sizes.json") << config;
  std::vector<c::save_tensor> tensors;
  for (const auto& [key, one] : all) tensors.emplace_back(key, c::view(one.values.data(), one.shape));
  c::save_options options;
  options.map = "hf.llama:megatron.gpt";
  options.config = folder / "sizes.json";
  for (const auto& [format, name] :
       std::map<shardmesh_format, std::string>{{SHARDMESH_FORMAT_DCP, "dcp"},
                                               {SHARDMESH_FORMAT_SAFETENSORS, "megatron.safetensors"},
                                               {SHARDMESH_FORMAT_TORCH, "megatron.pt"}}) {
    CAPTURE(name);
    options.format = format;
    const c::save_report report = c::save(folder / name.c_str(), tensors, options);
    CHECK(report.counts.tensors == 9);
    CHECK(says(report.notes.front(), "mapped from hf.llama to megatron.gpt"));
    const c::checkpoint stored = c::checkpoint::open(folder / name.c_str());
    CHECK(stored.load<float>(fused_qkv) == expected_qkv(all));
    CHECK(stored.load<float>(fused_gates) == expected_gates(all));
    c::open_options back = mapped("megatron.gpt:hf.llama");
    back.config = folder / "sizes.json";
    check_equal(c::checkpoint::open(folder / name.c_str(), back), all);
  }
}

TEST_CASE("a save with a mapping is refused without sizes, with other options of saves, and in conversions") {
  const scratch_folder folder;
  const model all = llama();
  std::vector<c::save_tensor> tensors;
  for (const auto& [key, one] : all) tensors.emplace_back(key, c::view(one.values.data(), one.shape));
  const auto refused = [&](const c::save_options& options) {
    const auto problems = problems_of([&] { c::save(folder / "new", tensors, options); });
    REQUIRE_FALSE(problems.empty());
    CHECK_FALSE(std::ifstream(folder / "new/.metadata").good());
    return problems[0];
  };
  c::save_options options;
  options.map = "hf.llama:megatron.gpt";
  CHECK(refused(options).status == SHARDMESH_MISSING_KEY);
  options.sizes = {{"layer", 1}, {"layer", 1}};
  CHECK(refused(options).message == "the argument sizes sets 'layer' twice");
  options.sizes = {{"layers", 1}};
  CHECK(says(refused(options).what(), "layers=1"));
  options.previous = folder / "old";
  CHECK(refused(options).message == "the argument map is set, and so is previous: set one of them");
  c::save_options alone;
  alone.config = "config.json";
  CHECK(refused(alone).message == "the argument config is set without map");
  const c::checkpoint source = c::checkpoint::open(written(folder, all));
  c::convert_options conversion;
  conversion.saving.map = "hf.llama:megatron.gpt";
  const auto problems = problems_of([&] { c::convert(source, folder / "new", conversion); });
  REQUIRE(problems.size() == 1);
  CHECK(problems[0].message ==
        "the argument map is set, and conversions map the checkpoint that they read: open it with map");
}

TEST_CASE("the mappings of the library are listed, with their texts") {
  const std::vector<std::string> names = c::mappings();
  CHECK(std::count(names.begin(), names.end(), "hf.llama:megatron.gpt") == 1);
  std::vector<std::pair<std::string, std::string>> conventions;
  for (const std::string& name : names) {
    const std::size_t middle = name.find(':');
    const auto& [left, right] = conventions.emplace_back(name.substr(0, middle), name.substr(middle + 1));
    const std::string text = c::mapping_text(name);
    CHECK(says(text, "left = \"" + left + "\""));
    CHECK(says(text, "right = \"" + right + "\""));
    CHECK(c::mapping_text(right + ":" + left) == text);
  }
  CHECK(std::is_sorted(conventions.begin(), conventions.end()));
  shardmesh_text text{};
  CHECK(shardmesh_mapping_name(names.size(), &text, nullptr) == SHARDMESH_OUT_OF_BOUNDS);
  CHECK(shardmesh_mapping_name(0, nullptr, nullptr) == SHARDMESH_INVALID_ARGUMENT);
  CHECK(shardmesh_mapping_count(nullptr, nullptr) == SHARDMESH_INVALID_ARGUMENT);
  CHECK(shardmesh_mapping_text(nullptr, &text, nullptr) == SHARDMESH_INVALID_ARGUMENT);
  REQUIRE(shardmesh_mapping_text("hf.llama:megatron.gpt", &text, nullptr) == SHARDMESH_OK);
  CHECK(text.bytes[text.size] == '\0');
  const auto unknown = problems_of([] { c::mapping_text("hf.llama:nothing"); });
  REQUIRE(unknown.size() == 1);
  CHECK(unknown[0].status == SHARDMESH_INVALID_ARGUMENT);
  CHECK(says(unknown[0].hint, "hf.llama:megatron.gpt"));
}

TEST_CASE("a mapping that is wrong, or that does not fit, is refused with the key or the known names") {
  const scratch_folder folder;
  model all = llama();
  all["model.extra.weight"] = {{1}, {7}};
  const std::string file = written(folder, all);
  const c::error unused = refusal(file, mapped("hf.llama:megatron.gpt"));
  CHECK(unused.status == SHARDMESH_MISSING_KEY);
  CHECK(unused.key == "model.extra.weight");
  const c::error unknown = refusal(file, mapped("hf.llama:nothing"));
  CHECK(unknown.status == SHARDMESH_INVALID_ARGUMENT);
  CHECK(says(unknown.hint, "megatron.gpt"));
  CHECK(refusal(file, mapped("no.toml")).status == SHARDMESH_IO);

  c::open_options both = mapped("hf.llama:megatron.gpt");
  both.only_keys = {"output_layer.weight"};
  CHECK(refusal(file, both).message == "the argument map is set, and so is only_keys: set one of them");
  c::open_options inverse = mapped("hf.llama:megatron.gpt");
  inverse.map_inverse = true;
  CHECK(says(refusal(file, inverse).hint, "swap"));
  c::open_options alone;
  alone.config = folder / "config.json";
  CHECK(refusal(file, alone).message == "the argument config is set without map");
  alone = {};
  alone.sizes = {{"layer", 1}};
  CHECK(refusal(file, alone).message == "the argument sizes is set without map");
  c::open_options twice = mapped("hf.llama:megatron.gpt");
  twice.sizes = {{"g", 1}, {"g", 2}};
  CHECK(refusal(file, twice).message == "the argument sizes sets 'g' twice");
  twice.sizes = {{"num_hiden_layers", 1}};
  const c::error misspelt = refusal(file, twice);
  CHECK(misspelt.status == SHARDMESH_INVALID_ARGUMENT);
  CHECK(misspelt.hint == "did you mean num_hidden_layers?");
  alone = {};
  alone.map_inverse = true;
  CHECK(refusal(file, alone).message == "the argument map_inverse is set without map");
  shardmesh_open_options null{};
  null.struct_size = sizeof null;
  null.map = "hf.llama:megatron.gpt";
  null.size_count = 1;
  shardmesh_checkpoint* made = nullptr;
  CHECK(shardmesh_checkpoint_open(file.c_str(), &null, &made, nullptr) == SHARDMESH_INVALID_ARGUMENT);
  CHECK(made == nullptr);
}
