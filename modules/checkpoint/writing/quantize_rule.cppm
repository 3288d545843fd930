// SPDX-License-Identifier: Apache-2.0
// quantize_rule: the types of tensors in a GGUF file, by key. The types themselves are in the room gguf.
export module shardmesh.checkpoint:quantize_rule;

import shardmesh.std;
import shardmesh.core;
import shardmesh.gguf;
import :key_pattern;

export namespace shardmesh {

/// A rule that quantizes tensors of a GGUF file to blocks of `type`, or keeps them as numbers (F32). Without a pattern,
/// it applies to the floating tensors that llama.cpp would quantize: those of two or more dimensions whose rows are
/// whole blocks. With one, it applies to every tensor whose key matches.
struct quantize_rule {
  std::optional<key_pattern> what;
  gguf::tensor_type type = gguf::tensor_type::q8_0;
  friend bool operator==(const quantize_rule&, const quantize_rule&) = default;
};

/// Parses "TYPE" or "RE=TYPE", split at the last '='. The types are Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q6_K, and
/// F32.
/// \errors errc::invalid_argument with the text
result<quantize_rule> parse_quantize_rule(std::string_view text);

/// Returns a text that `parse_quantize_rule` would read as this rule.
std::string to_string(const quantize_rule& rule);

}  // namespace shardmesh
