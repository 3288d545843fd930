// SPDX-License-Identifier: Apache-2.0
// Not exported: the cut of each tensor of a model between Megatron's tensor-parallel ranks, by its name, and the names
// of the model's tensors in a rank's file. Merging the files is in megatron_ranks.
// Source: the layers of megatron-core 0.16.1 (megatron/core/transformer, megatron/core/tensor_parallel/layers.py)
module shardmesh.checkpoint:megatron_cut;

import shardmesh.std;
import shardmesh.core;

namespace shardmesh {

enum class megatron_cut : std::uint8_t {
  copy,     // each rank has the whole tensor
  rows,     // cut along dimension 0
  columns,  // cut along dimension 1
  gates,    // cut along dimension 0; with a gated activation, a part has rows of gate, then as many rows of up
  unknown   // cut in another way
};

// An entry of the model in a rank's file: "model1.decoder.layers.3.mlp.linear_fc2.weight".
struct megatron_key {
  std::int64_t chunk = 0;             // the virtual stage: 1; 0 for "model."
  std::string name;                   // without "model1."
  std::optional<std::int64_t> layer;  // of "decoder.layers.": 3, counted from the begin of the stage
  std::string in_layer;               // "mlp.linear_fc2.weight"
};

// Returns nothing for an entry outside of the model.
std::optional<megatron_key> parse_megatron_key(std::string_view key);

// The name of the entry with the number of its layer in the whole model. `first`: the number of the stage's first
// layer.
std::string whole_name(const megatron_key& key, std::int64_t first);

// Returns the cut of a tensor. `name` is without "model.".
megatron_cut megatron_cut_of(std::string_view name);

// The name of the weight that takes the activations of a linear_fc1: "mlp.linear_fc2.weight" for "mlp.linear_fc1.bias".
std::string second_layer_of(std::string_view name);

// True for the tensors of routed experts, but not for those of shared experts.
bool is_of_experts(std::string_view name);

}  // namespace shardmesh
