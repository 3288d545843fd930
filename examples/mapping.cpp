// SPDX-License-Identifier: Apache-2.0
// Shows a checkpoint under another naming convention, by the rules of a TOML file: reads one row of a tensor that the
// rules compute, and writes all tensors to a file. Then it saves a state in memory under the other names, and moves the
// model between two ranks, from one naming convention to the other. The checkpoint is a tiny model, which the program
// writes first. Usage: mapping MAPPING.toml
#include <shardmesh/try.hpp>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

import shardmesh;
import shardmesh.mapping;

namespace sm = shardmesh;

// The names and shapes of a model with two layers.
std::vector<std::pair<std::string, sm::extents>> model() {
  std::vector<std::pair<std::string, sm::extents>> all{{"embed.weight", {5, 8}}, {"head.weight", {5, 8}}};
  for (int layer = 0; layer < 2; ++layer) {
    const std::string prefix = "layers." + std::to_string(layer) + ".";
    all.emplace_back(prefix + "norm.weight", sm::extents{8});
    all.emplace_back(prefix + "attention.q.weight", sm::extents{8, 8});
    all.emplace_back(prefix + "attention.k.weight", sm::extents{4, 8});
    all.emplace_back(prefix + "attention.v.weight", sm::extents{4, 8});
    all.emplace_back(prefix + "attention.o.weight", sm::extents{8, 8});
    all.emplace_back(prefix + "attention.inv_freq", sm::extents{1});
    all.emplace_back(prefix + "mlp.gate.weight", sm::extents{3, 8});
    all.emplace_back(prefix + "mlp.up.weight", sm::extents{3, 8});
    all.emplace_back(prefix + "experts.0.weight", sm::extents{3, 8});
    all.emplace_back(prefix + "experts.1.weight", sm::extents{3, 8});
  }
  return all;
}

// Writes the model and its configuration. The elements of each tensor are numbered from 0.
sm::result<void> write_model(const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << R"({
  "vocab_size": 5, "hidden_size": 8, "intermediate_size": 3, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "num_experts": 2, "tie_word_embeddings": true
})";
  std::vector<sm::host_tensor> memory;
  std::vector<sm::save_tensor> tensors;
  for (const auto& [key, shape] : model()) {
    SHARDMESH_TRY(sm::host_tensor tensor, sm::host_tensor::make(sm::dtype::float32, shape));
    const auto values = tensor.values<float>();
    std::iota(values.begin(), values.end(), 0.0F);
    sm::save_tensor one{key, {}, shape, {}};
    one.parts.push_back({sm::box::whole(shape), sm::view_of(tensor), 0});
    tensors.push_back(std::move(one));
    memory.push_back(std::move(tensor));
  }
  SHARDMESH_TRY(sm::save(folder / "model.safetensors", tensors, sm::target_format::safetensors, {.overwrite = true}));
  return {};
}

// Saves a state in memory under the names of the right side, and loads a tensor of the file under its name in the
// state.
sm::result<void> save_state(const sm::mapping_rules& rules, const sm::model_sizes& sizes) {
  SHARDMESH_TRY(const auto state, sm::read_state_dict<sm::host_tensor>("tiny"));  // under the left names
  SHARDMESH_TRY(const sm::const_local_state held, sm::local_view(state));
  const std::vector<sm::mapping_rules> there{rules}, back{rules.inverse()};
  SHARDMESH_TRY(sm::save_mapped("saved.safetensors", held, there, sizes, {.overwrite = true}));

  SHARDMESH_TRY(auto reader, sm::open_checkpoint("saved.safetensors"));
  SHARDMESH_TRY(reader, sm::map_checkpoint(std::move(reader), back, sizes));
  SHARDMESH_TRY(sm::host_tensor k, sm::host_tensor::make(sm::dtype::float32, {4, 8}));
  SHARDMESH_TRY(sm::load_into(*reader, "layers.0.attention.k.weight", sm::box::whole({4, 8}), sm::view_of(k)));
  std::printf("saved and loaded: the last element of k is %g\n", static_cast<double>(k.values<float>().back()));
  return {};
}

// Two ranks have the rows of each tensor under the left names. They fill tensors under the right names, cut by columns,
// and then save the rows under the right names.
sm::result<void> move_model(const sm::mapping_rules& rules, const sm::model_sizes& sizes, sm::any_communicator& comm) {
  SHARDMESH_TRY(const auto reader, sm::open_checkpoint("tiny"));
  SHARDMESH_TRY(const auto bound, sm::bind_mapping(rules, reader->contents(), sizes));  // for the shapes
  SHARDMESH_TRY(const auto mesh, sm::device_mesh::make({comm.size()}));
  std::vector<sm::host_tensor> memory;  // of this rank
  std::vector<sm::named_source> from;
  sm::const_local_state held;
  for (const auto& [key, shape] : model()) {
    SHARDMESH_TRY(const auto rows, sm::layout::make(mesh, {sm::placement::shard(0)}, shape));
    SHARDMESH_TRY(auto tensor, sm::host_tensor::zeros(sm::dtype::float32, rows.local_shape(comm.rank())));
    SHARDMESH_TRY(auto side, sm::side_of(rows, tensor));
    from.push_back({key, std::move(side)});
    const sm::box part{rows.first_index(comm.rank()), tensor.sizes()};
    held.tensors.push_back({sm::path{key}, shape, tensor.type(), {{part, sm::view_of(tensor)}}, {}});
    memory.push_back(std::move(tensor));
  }
  std::vector<sm::named_target> to;
  for (const sm::bound_tensor& one : bound.tensors) {
    const int last = static_cast<int>(one.shape.rank()) - 1;
    SHARDMESH_TRY(const auto columns, sm::layout::make(mesh, {sm::placement::shard(last)}, one.shape));
    SHARDMESH_TRY(auto tensor, sm::host_tensor::make(one.type, columns.local_shape(comm.rank())));
    SHARDMESH_TRY(auto side, sm::side_of(columns, tensor));
    to.push_back({one.key, std::move(side)});
    memory.push_back(std::move(tensor));
  }
  const std::vector<sm::mapping_rules> there{rules};
  SHARDMESH_TRY(const auto moved, sm::redistribute(from, to, there, sizes, comm));  // on every rank
  SHARDMESH_TRY(sm::save_mapped("by_ranks", held, there, sizes, comm, {.overwrite = true}));
  if (comm.rank() == 0) std::printf("rank 0 received %d bytes\n", static_cast<int>(moved.received_bytes));
  return {};
}

sm::result<void> map_model(const char* file) {
  SHARDMESH_TRY(write_model("tiny"));
  SHARDMESH_TRY(const sm::mapping_rules rules, sm::read_mapping(file));  // or find_mappings("hf.llama:megatron.gpt")
  sm::model_sizes sizes;
  SHARDMESH_TRY(sizes.config, sm::read_config("tiny/config.json"));
  SHARDMESH_TRY(auto reader, sm::open_checkpoint("tiny"));
  SHARDMESH_TRY(auto bound, sm::bind_mapping(rules, reader->contents(), sizes));  // the proof
  SHARDMESH_TRY(auto shown, sm::mapped(std::move(reader), std::move(bound), {.check_sums = true}));
  const sm::checkpoint fused(std::move(shown));  // a checkpoint like any other

  // Row 12 has the first row of the key of group 1, which is row 2 of k.
  const std::string key = "blocks.0.attention.qkv.weight";
  SHARDMESH_TRY(const auto row, fused.load(key, sm::box{{12, 0}, {1, 8}}));
  std::printf("%s, row 12:", key.c_str());
  for (const float value : row.values<float>()) std::printf(" %g", static_cast<double>(value));
  SHARDMESH_TRY(const auto report, sm::convert(fused, "fused.safetensors", {.overwrite = true}));
  std::printf("\nwrote %d tensors\n", static_cast<int>(report.tensors));
  SHARDMESH_TRY(save_state(rules, sizes));
  return sm::run_ranks(2, [&](sm::any_communicator& comm) { return move_model(rules, sizes, comm); });
}

int main(int argc, char** argv) {
  if (argc != 2) return std::fprintf(stderr, "usage: mapping MAPPING.toml\n"), 2;
  const auto done = map_model(argv[1]);
  if (!done) return std::fprintf(stderr, "%s\n", to_string(done.error()).c_str()), 1;
}
