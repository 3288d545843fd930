// SPDX-License-Identifier: Apache-2.0
// Source: the keys and types of the Python package gguf 0.19.0; which of them each architecture has, from llama.cpp's
// converter as of 2026. Numbers after `??` are the defaults of Hugging Face's configurations.
module;
#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
module shardmesh.mapping;

import :architectures;

namespace shardmesh::llama_cpp {
namespace {

using enum field_kind;

constexpr std::array llama_fields{
    model_field{"block_count", integer, "num_hidden_layers"},
    model_field{"context_length", integer, "max_position_embeddings"},
    model_field{"embedding_length", integer, "hidden_size"},
    model_field{"feed_forward_length", integer, "intermediate_size"},
    model_field{"attention.head_count", integer, "num_attention_heads"},
    model_field{"attention.head_count_kv", integer, "num_key_value_heads ?? num_attention_heads"},
    model_field{"attention.key_length", integer, "head_dim", false},
    model_field{"attention.value_length", integer, "head_dim", false},
    model_field{"attention.layer_norm_rms_epsilon", fraction, "rms_norm_eps"},
    model_field{"rope.dimension_count", integer, "head_dim ?? hidden_size / num_attention_heads"},
    model_field{"vocab_size", integer, "vocab_size"},
    model_field{"expert_count", integer, "num_local_experts", false},
    model_field{"expert_used_count", integer, "num_experts_per_tok", false},
};

constexpr std::array qwen_fields{
    model_field{"block_count", integer, "num_hidden_layers"},
    model_field{"context_length", integer, "max_position_embeddings"},
    model_field{"embedding_length", integer, "hidden_size"},
    model_field{"feed_forward_length", integer, "intermediate_size"},
    model_field{"attention.head_count", integer, "num_attention_heads"},
    model_field{"attention.head_count_kv", integer, "num_key_value_heads ?? num_attention_heads"},
    model_field{"attention.key_length", integer, "head_dim", false},
    model_field{"attention.value_length", integer, "head_dim", false},
    model_field{"attention.layer_norm_rms_epsilon", fraction, "rms_norm_eps"},
};

constexpr std::array qwen3_fields{
    model_field{"block_count", integer, "num_hidden_layers"},
    model_field{"context_length", integer, "max_position_embeddings"},
    model_field{"embedding_length", integer, "hidden_size"},
    model_field{"feed_forward_length", integer, "intermediate_size"},
    model_field{"attention.head_count", integer, "num_attention_heads"},
    model_field{"attention.head_count_kv", integer, "num_key_value_heads ?? num_attention_heads"},
    model_field{"attention.key_length", integer, "head_dim ?? 128"},
    model_field{"attention.value_length", integer, "head_dim ?? 128"},
    model_field{"attention.layer_norm_rms_epsilon", fraction, "rms_norm_eps"},
};

constexpr std::array qwen_moe_fields{
    model_field{"block_count", integer, "num_hidden_layers"},
    model_field{"context_length", integer, "max_position_embeddings"},
    model_field{"embedding_length", integer, "hidden_size"},
    model_field{"feed_forward_length", integer, "intermediate_size"},
    model_field{"attention.head_count", integer, "num_attention_heads"},
    model_field{"attention.head_count_kv", integer, "num_key_value_heads ?? num_attention_heads"},
    model_field{"attention.key_length", integer, "head_dim", false},
    model_field{"attention.value_length", integer, "head_dim", false},
    model_field{"attention.layer_norm_rms_epsilon", fraction, "rms_norm_eps"},
    model_field{"expert_count", integer, "num_local_experts ?? num_experts"},
    model_field{"expert_used_count", integer, "num_experts_per_tok"},
    model_field{"expert_feed_forward_length", integer, "moe_intermediate_size"},
    model_field{"expert_shared_feed_forward_length", integer, "shared_expert_intermediate_size", false},
};

constexpr std::array gemma2_fields{
    model_field{"block_count", integer, "num_hidden_layers"},
    model_field{"context_length", integer, "max_position_embeddings"},
    model_field{"embedding_length", integer, "hidden_size"},
    model_field{"feed_forward_length", integer, "intermediate_size"},
    model_field{"attention.head_count", integer, "num_attention_heads"},
    model_field{"attention.head_count_kv", integer, "num_key_value_heads ?? num_attention_heads"},
    model_field{"attention.key_length", integer, "head_dim"},
    model_field{"attention.value_length", integer, "head_dim"},
    model_field{"attention.layer_norm_rms_epsilon", fraction, "rms_norm_eps"},
    model_field{"attention.sliding_window", integer, "sliding_window"},
    model_field{"attn_logit_softcapping", fraction, "attn_logit_softcapping"},
    model_field{"final_logit_softcapping", fraction, "final_logit_softcapping"},
};

// The published configurations of models with vision omit most numbers.
constexpr std::array gemma3_fields{
    model_field{"block_count", integer, "num_hidden_layers"},
    model_field{"context_length", integer, "max_position_embeddings ?? 131072"},
    model_field{"embedding_length", integer, "hidden_size"},
    model_field{"feed_forward_length", integer, "intermediate_size"},
    model_field{"attention.head_count", integer, "num_attention_heads ?? 8"},
    model_field{"attention.head_count_kv", integer, "num_key_value_heads ?? 4"},
    model_field{"attention.key_length", integer, "head_dim ?? 256"},
    model_field{"attention.value_length", integer, "head_dim ?? 256"},
    model_field{"attention.layer_norm_rms_epsilon", fraction, "rms_norm_eps", true, {}, 1e-6},
    model_field{"attention.sliding_window", integer, "sliding_window", true, "(sliding_window_pattern ?? 6) != 1"},
    model_field{"final_logit_softcapping", fraction, "final_logit_softcapping", false},
};

constexpr std::array phi3_fields{
    model_field{"block_count", integer, "num_hidden_layers"},
    model_field{"context_length", integer, "n_positions ?? max_position_embeddings"},
    model_field{"embedding_length", integer, "hidden_size"},
    model_field{"feed_forward_length", integer, "intermediate_size"},
    model_field{"attention.head_count", integer, "num_attention_heads"},
    model_field{"attention.head_count_kv", integer, "num_key_value_heads ?? num_attention_heads"},
    model_field{"attention.layer_norm_rms_epsilon", fraction, "rms_norm_eps"},
    model_field{"attention.sliding_window", integer, "sliding_window ?? 0"},
};

constexpr std::array gpt2_fields{
    model_field{"block_count", integer, "n_layer"},
    model_field{"context_length", integer, "n_ctx ?? n_positions"},
    model_field{"embedding_length", integer, "n_embd"},
    model_field{"feed_forward_length", integer, "n_inner ?? 4 * n_embd"},
    model_field{"attention.head_count", integer, "n_head"},
    model_field{"attention.layer_norm_epsilon", fraction, "layer_norm_epsilon"},
};

constexpr std::array gpt_oss_fields{
    model_field{"block_count", integer, "num_hidden_layers"},
    model_field{"context_length", integer, "max_position_embeddings"},
    model_field{"embedding_length", integer, "hidden_size"},
    model_field{"feed_forward_length", integer, "intermediate_size"},
    model_field{"attention.head_count", integer, "num_attention_heads"},
    model_field{"attention.head_count_kv", integer, "num_key_value_heads ?? num_attention_heads"},
    model_field{"attention.key_length", integer, "head_dim ?? 64"},
    model_field{"attention.value_length", integer, "head_dim ?? 64"},
    model_field{"attention.layer_norm_rms_epsilon", fraction, "rms_norm_eps"},
    model_field{"attention.sliding_window", integer, "sliding_window"},
    model_field{"expert_count", integer, "num_local_experts ?? num_experts"},
    model_field{"expert_used_count", integer, "num_experts_per_tok ?? experts_per_token"},
    model_field{"expert_feed_forward_length", integer, "intermediate_size"},
};

// llama.cpp computes multi-head latent attention with one head of keys and values, as large as the latent vector.
constexpr std::array deepseek2_fields{
    model_field{"block_count", integer, "num_hidden_layers"},
    model_field{"context_length", integer, "max_position_embeddings"},
    model_field{"embedding_length", integer, "hidden_size"},
    model_field{"feed_forward_length", integer, "intermediate_size"},
    model_field{"attention.head_count", integer, "num_attention_heads"},
    model_field{"attention.head_count_kv", integer, "1"},
    model_field{"attention.layer_norm_rms_epsilon", fraction, "rms_norm_eps", true, {}, 1e-6},
    model_field{"attention.q_lora_rank", integer, "q_lora_rank", false},
    model_field{"attention.kv_lora_rank", integer, "kv_lora_rank ?? 512"},
    model_field{"attention.key_length", integer, "(kv_lora_rank ?? 512) + qk_rope_head_dim"},
    model_field{"attention.value_length", integer, "kv_lora_rank ?? 512"},
    model_field{"attention.key_length_mla", integer, "qk_nope_head_dim + qk_rope_head_dim"},
    model_field{"attention.value_length_mla", integer, "v_head_dim"},
    model_field{"rope.dimension_count", integer, "qk_rope_head_dim"},
    model_field{"vocab_size", integer, "vocab_size"},
    model_field{"leading_dense_block_count", integer, "first_k_dense_replace ?? 0"},
    model_field{"expert_count", integer, "n_routed_experts"},
    model_field{"expert_used_count", integer, "num_experts_per_tok"},
    model_field{"expert_shared_count", integer, "n_shared_experts ?? 0"},
    model_field{"expert_group_count", integer, "n_group", false},
    model_field{"expert_group_used_count", integer, "topk_group", false},
    model_field{"expert_feed_forward_length", integer, "moe_intermediate_size"},
    model_field{"expert_weights_scale", fraction, "routed_scaling_factor", false},
    model_field{"expert_weights_norm", flag, "norm_topk_prob", false},
    // 1: softmax, 2: sigmoid, which is the only function of DeepSeek-V3 in Transformers.
    model_field{"expert_gating_func", integer, "scoring_func.softmax ?? 2"},
};

constexpr std::array llama4_fields{
    model_field{"block_count", integer, "num_hidden_layers"},
    model_field{"context_length", integer, "max_position_embeddings"},
    model_field{"embedding_length", integer, "hidden_size"},
    model_field{"feed_forward_length", integer, "intermediate_size_mlp"},
    model_field{"attention.head_count", integer, "num_attention_heads"},
    model_field{"attention.head_count_kv", integer, "num_key_value_heads ?? num_attention_heads"},
    model_field{"attention.key_length", integer, "head_dim", false},
    model_field{"attention.value_length", integer, "head_dim", false},
    model_field{"attention.layer_norm_rms_epsilon", fraction, "rms_norm_eps"},
    model_field{"rope.dimension_count", integer, "head_dim ?? hidden_size / num_attention_heads"},
    model_field{"vocab_size", integer, "vocab_size"},
    model_field{"interleave_moe_layer_step", integer, "interleave_moe_layer_step ?? 1"},
    model_field{"expert_count", integer, "num_local_experts"},
    model_field{"expert_used_count", integer, "num_experts_per_tok"},
    model_field{"expert_feed_forward_length", integer, "intermediate_size"},
};

constexpr std::array<std::string_view, 2> llama_types{"llama", "mistral"};
constexpr std::array<std::string_view, 1> mixtral_types{"mixtral"};
constexpr std::array<std::string_view, 1> qwen2_types{"qwen2"};
constexpr std::array<std::string_view, 1> qwen3_types{"qwen3"};
constexpr std::array<std::string_view, 1> qwen2_moe_types{"qwen2_moe"};
constexpr std::array<std::string_view, 1> qwen3_moe_types{"qwen3_moe"};
constexpr std::array<std::string_view, 1> gemma2_types{"gemma2"};
constexpr std::array<std::string_view, 2> gemma3_types{"gemma3", "gemma3_text"};
constexpr std::array<std::string_view, 1> phi3_types{"phi3"};
constexpr std::array<std::string_view, 1> gpt2_types{"gpt2"};
constexpr std::array<std::string_view, 1> gpt_oss_types{"gpt_oss"};
constexpr std::array<std::string_view, 2> deepseek_types{"deepseek_v3", "kimi_k2"};
constexpr std::array<std::string_view, 2> llama4_types{"llama4", "llama4_text"};

constexpr std::array table{
    model_architecture{"llama", "gguf.llama", llama_types, llama_fields, rope_form::llama},
    model_architecture{"llama", "gguf.mixtral", mixtral_types, llama_fields},
    model_architecture{"qwen2", "gguf.qwen3", qwen2_types, qwen_fields},
    model_architecture{"qwen3", "gguf.qwen3", qwen3_types, qwen3_fields},
    model_architecture{"qwen2moe", "gguf.qwen2-moe", qwen2_moe_types, qwen_moe_fields, rope_form::usual,
                       tokenizer_form::bytes},
    model_architecture{"qwen3moe", "gguf.qwen3-moe", qwen3_moe_types, qwen_moe_fields, rope_form::usual,
                       tokenizer_form::bytes},
    model_architecture{"gemma2", "gguf.gemma3", gemma2_types, gemma2_fields, rope_form::none, tokenizer_form::pieces,
                       true},
    model_architecture{"gemma3", "gguf.gemma3", gemma3_types, gemma3_fields, rope_form::usual, tokenizer_form::pieces,
                       true},
    model_architecture{"phi3", "gguf.phi3", phi3_types, phi3_fields, rope_form::phi3},
    model_architecture{"gpt2", "gguf.gpt2", gpt2_types, gpt2_fields, rope_form::none, tokenizer_form::bytes},
    model_architecture{"gpt-oss", "gguf.gpt-oss", gpt_oss_types, gpt_oss_fields, rope_form::usual,
                       tokenizer_form::bytes},
    model_architecture{"deepseek2", "gguf.deepseek-v3", deepseek_types, deepseek2_fields, rope_form::deepseek,
                       tokenizer_form::bytes},
    model_architecture{"llama4", "gguf.llama4", llama4_types, llama4_fields, rope_form::llama, tokenizer_form::bytes},
};

}  // namespace

const model_architecture* find_architecture(std::string_view convention, std::string_view model_type) {
  for (const model_architecture& one : table) {
    const auto& types = one.model_types;
    if (one.convention == convention && std::find(types.begin(), types.end(), model_type) != types.end()) return &one;
  }
  return nullptr;
}

std::string model_types_of(std::string_view convention) {
  std::string made;
  for (const model_architecture& one : table) {
    if (one.convention != convention) continue;
    for (const std::string_view type : one.model_types) {
      if (!made.empty()) made += ", ";
      made += type;
    }
  }
  return made;
}

}  // namespace shardmesh::llama_cpp
