// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>
module shardmesh.mapping;

import shardmesh.checkpoint_core;
import :rule_captures;
import :state_form;
import :state_kind;

namespace shardmesh {

result<bound_form> form_of(const catalog& source, const bound_mapping& made, const state_kind& kind, std::size_t number,
                           const std::vector<std::size_t>& sources) {
  const bound_instance& instance = made.instances[number];
  const mapping_rule& rule = made.rule_of(instance);
  const tensor_entry& first = source.tensors[sources[0]];
  bool is_scalar = box::whole(first.shape).volume() == 1, is_like_parameter = true;
  for (std::size_t s = 0; s < sources.size(); ++s) {
    const tensor_entry& state = source.tensors[sources[s]];
    is_scalar = is_scalar && state.shape == first.shape;
    is_like_parameter = is_like_parameter && state.shape == source.tensors[instance.sources[s]].shape;
    if (state.type != first.type)
      return fail(errc::dtype_mismatch, fmt::format("{} joins optimizer state of several dtypes", described(rule)))
          .with_key(state.key)
          .with_values(std::string(name(first.type)), std::string(name(state.type)))
          .with_hint("cast them first");
  }
  if (is_scalar && (kind.name() == "step" || !is_like_parameter)) return bound_form::scalar;
  if (!is_like_parameter && !rule.index.is_rename())
    return fail(errc::unsupported,
                fmt::format("{} rearranges the parameter of this optimizer state, whose shape is another one",
                            described(rule)))
        .with_key(first.key)
        .with_values(to_string(source.tensors[instance.sources[0]].shape), to_string(first.shape))
        .with_hint("leave this state out before the checkpoint is mapped");
  if (rule.values.empty()) return bound_form::elements;
  if (kind.is_master()) return bound_form::rule;
  if (made.mapping.optimizer_values == state_values::keep) return bound_form::elements;
  return fail(errc::unsupported,
              fmt::format("{} has operations on values, which optimizer state cannot follow", described(rule)))
      .with_key(first.key)
      .with_hint("leave the optimizer out first, or keep its values: values = \"keep\" in [optimizer] of the mapping");
}

result<void> check_dtype(const catalog& source, const bound_mapping& made, const bound_instance& instance) {
  if (made.renames(instance)) return {};
  const tensor_entry& first = source.tensors[instance.sources[0]];
  const bool is_whole = bits(first.type) > 0 && bits(first.type) % 8 == 0 && first.opaque_type.empty();
  const bool is_changed = instance.form == bound_form::rule && !made.rule_of(instance).values.empty();
  if (is_whole && (!is_changed || is_floating(first.type))) return {};
  return fail(errc::unsupported,
              fmt::format("{} cannot compute with optimizer state of this kind", described(made.rule_of(instance))))
      .with_key(first.key)
      .with_values(is_changed ? "a floating-point dtype" : "a dtype of whole bytes",
                   first.opaque_type.empty() ? std::string(name(first.type)) : first.opaque_kind);
}

}  // namespace shardmesh
