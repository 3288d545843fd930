// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import :consolidated_cut;

namespace shardmesh {
namespace {

enum class cut_kind : std::uint8_t {
  rows,
  columns,
  embedding,  // Llama 1 and 2 cut the columns of the embedding, Llama 3 and 4 its rows
  halves,     // two matrices, one after another
  fused,      // the query, key, and value matrices, one after another
  experts     // one matrix for each expert
};
enum class length : std::uint8_t { any, model, vocabulary, feed_forward, queries, keys, fused };

// A tensor that is cut: the end of its name, and the shape of the whole tensor.
struct known_cut {
  std::string_view name;
  cut_kind kind;
  length rows, columns;
};

constexpr auto known_cuts = std::to_array<known_cut>({
    {"tok_embeddings.weight", cut_kind::embedding, length::vocabulary, length::model},
    {"output.weight", cut_kind::rows, length::vocabulary, length::model},
    {"attention.wq.weight", cut_kind::rows, length::queries, length::model},
    {"attention.wk.weight", cut_kind::rows, length::keys, length::model},
    {"attention.wv.weight", cut_kind::rows, length::keys, length::model},
    {"attention.wo.weight", cut_kind::columns, length::model, length::queries},
    {"feed_forward.w1.weight", cut_kind::rows, length::feed_forward, length::model},
    {"feed_forward.w2.weight", cut_kind::columns, length::model, length::feed_forward},
    {"feed_forward.w3.weight", cut_kind::rows, length::feed_forward, length::model},
    // Llama 4
    {"attention.wqkv.weight", cut_kind::fused, length::fused, length::model},
    {"feed_forward.mlp.fc1_weight", cut_kind::halves, length::any, length::model},
    {"feed_forward.mlp.fc2_weight", cut_kind::columns, length::model, length::any},
    {"feed_forward.w_in_shared_FD.weight", cut_kind::rows, length::any, length::model},
    {"feed_forward.w_swiglu_FD.weight", cut_kind::rows, length::any, length::model},
    {"feed_forward.w_out_shared_DF.weight", cut_kind::columns, length::model, length::any},
    {"feed_forward.experts.moe_w_in_eD_F", cut_kind::columns, length::any, length::any},
    {"feed_forward.experts.moe_w_swiglu_eD_F", cut_kind::columns, length::any, length::any},
    {"feed_forward.experts.moe_w_out_eF_D", cut_kind::experts, length::any, length::model},
    // The vision encoders of Llama 3.2 and 4
    {"attn.wq.weight", cut_kind::rows, length::any, length::any},
    {"attn.wk.weight", cut_kind::rows, length::any, length::any},
    {"attn.wv.weight", cut_kind::rows, length::any, length::any},
    {"attn.wq.bias", cut_kind::rows, length::any, length::any},
    {"attn.wk.bias", cut_kind::rows, length::any, length::any},
    {"attn.wv.bias", cut_kind::rows, length::any, length::any},
    {"attn.wo.weight", cut_kind::columns, length::any, length::any},
    {"mlp.c_fc.weight", cut_kind::rows, length::any, length::any},
    {"mlp.c_fc.bias", cut_kind::rows, length::any, length::any},
    {"mlp.c_proj.weight", cut_kind::columns, length::any, length::any},
    {"conv1._linear.weight", cut_kind::rows, length::any, length::any},
    {"vision_projection.weight", cut_kind::rows, length::any, length::any},
});

// True when `name` is the key, or its last components.
bool ends_in(std::string_view key, std::string_view name) {
  return key.ends_with(name) && (key.size() == name.size() || key[key.size() - name.size() - 1] == '.');
}

// The length in the whole tensor; nothing if any length is right.
std::optional<std::int64_t> value_of(length which, const consolidated_sizes& sizes) {
  switch (which) {
    case length::model:
      return sizes.model;
    case length::vocabulary:
      return sizes.vocabulary;
    case length::feed_forward:
      return sizes.feed_forward;
    case length::queries:
      return sizes.queries;
    case length::keys:
      return sizes.keys;
    case length::fused:
      return sizes.queries + 2 * sizes.keys;
    case length::any:
      break;
  }
  return std::nullopt;
}

// "[128256, any]"
std::string shape_text(const std::array<std::optional<std::int64_t>, 2>& lengths) {
  const auto text = [](const std::optional<std::int64_t>& one) { return one ? fmt::format("{}", *one) : "any"; };
  return fmt::format("[{}, {}]", text(lengths[0]), text(lengths[1]));
}

// The blocks of a part along the cut dimension.
result<std::vector<std::int64_t>> blocks_of(cut_kind kind, std::int64_t part, const consolidated_sizes& sizes) {
  constexpr std::int64_t most_experts = 65536;
  if (kind == cut_kind::fused) {
    // cut_of has compared the sum, and `keys` is divisible, so that the queries are divisible.
    const std::int64_t keys = sizes.keys / sizes.files;
    return std::vector<std::int64_t>{part - 2 * keys, keys, keys};
  }
  if (kind != cut_kind::halves && kind != cut_kind::experts) return std::vector<std::int64_t>{part};
  if (kind == cut_kind::experts && !sizes.expert_number)
    return fail(errc::missing_key, "params.json lacks 'num_experts' in 'moe_args', which decides how it is merged");
  const std::int64_t count = kind == cut_kind::halves ? 2 : *sizes.expert_number;
  if (count > most_experts)
    return fail(errc::unsupported, "has more experts than any model")
        .with_values(fmt::format("at most {}", most_experts), fmt::format("{}", count));
  if (part % count != 0)
    return fail(errc::shape_mismatch, "the rows of a part do not divide")
        .with_values(fmt::format("a multiple of {} rows", count), fmt::format("{}", part));
  return std::vector<std::int64_t>(static_cast<std::size_t>(count), part / count);
}

}  // namespace

result<std::optional<consolidated_cut>> cut_of(std::string_view key, const extents& part,
                                               const consolidated_sizes& sizes) {
  const auto known =
      std::find_if(known_cuts.begin(), known_cuts.end(), [&](const known_cut& one) { return ends_in(key, one.name); });
  if (known == known_cuts.end()) return std::optional<consolidated_cut>();
  const std::size_t rank = known->name.ends_with("bias") ? 1 : 2;
  if (part.rank() != rank)
    return fail(errc::shape_mismatch, "has another number of dimensions than the model's tensors of this name")
        .with_values(fmt::format("{} dimensions", rank), to_string(part));
  const std::array expected{value_of(known->rows, sizes), value_of(known->columns, sizes)};
  if (known->rows == length::vocabulary && !expected[0])
    return fail(errc::missing_key, "params.json states no 'vocab_size', and no other tensor shows it")
        .with_hint("set 'vocab_size' in params.json");
  consolidated_cut made;
  if (known->kind == cut_kind::columns || (known->kind == cut_kind::embedding && part[1] != sizes.model)) made.dim = 1;
  made.whole = part;
  const auto product = checked_multiply(part[made.dim], sizes.files);
  if (!product) return fail(errc::overflow, "the length of the merged tensor does not fit in 64 bits");
  made.whole[made.dim] = *product;
  for (std::size_t d = 0; d < rank; ++d)
    if (expected[d] && *expected[d] != made.whole[d])
      return fail(errc::shape_mismatch, fmt::format("its parts in {} files, {} each, form another shape than "
                                                    "params.json states",
                                                    sizes.files, to_string(part)))
          .with_values(shape_text(expected), to_string(made.whole))
          .with_hint("check that the folder has all files of the model, and its own params.json");
  SHARDMESH_TRY(made.blocks, blocks_of(known->kind, part[made.dim], sizes));
  return std::optional(std::move(made));
}

bool is_replicated_by_name(std::string_view key) {
  static constexpr auto endings = std::to_array<std::string_view>(
      {"norm.weight", "layer_norm_weight", ".ln_1.weight", ".ln_1.bias", ".ln_2.weight", ".ln_2.bias", ".ln_pre.weight",
       ".ln_pre.bias", ".ln_post.weight", ".ln_post.bias", ".router_DE", ".attn.wo.bias", ".mlp.c_proj.bias",
       ".class_embedding", ".positional_embedding_vlm"});
  return std::any_of(endings.begin(), endings.end(), [&](auto end) { return key.ends_with(end); });
}

}  // namespace shardmesh
