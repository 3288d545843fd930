// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <string>
#include <string_view>
#include <utility>
module shardmesh.checkpoint;

import shardmesh.gguf;

namespace shardmesh {
namespace {

// The reason why no tensor can be quantized to a type; nullptr: there is no such type.
std::string_view reason_against(const gguf::type_traits* type) {
  if (type == nullptr) return "no type of GGUF has this name";
  if (type->is_plain()) return "this type has no blocks: a cast gives it";
  return type->is_decoded ? "this type is only read" : "this type is neither read nor written";
}

}  // namespace

result<quantize_rule> parse_quantize_rule(std::string_view text) {
  const std::size_t equals = text.rfind('=');
  const std::string_view spelled = equals == std::string_view::npos ? text : text.substr(equals + 1);
  const gguf::type_traits* const type = gguf::find_type(spelled);
  if (type == nullptr || (!type->is_encoded && type->type != gguf::tensor_type::f32)) {
    std::string names;
    for (const gguf::type_traits& one : gguf::tensor_types())
      if (one.is_encoded) names += fmt::format("{}, ", one.name);
    error why = fail(errc::invalid_argument, fmt::format("'{}': {}", text, reason_against(type)))
                    .with_values(names + "or F32", std::string(spelled));
    if (type == nullptr || !type->is_plain()) return why;
    return std::move(why).with_hint(fmt::format("pass dtype {}", name(type->plain)));
  }
  quantize_rule rule;
  rule.type = type->type;
  if (equals != std::string_view::npos) {
    SHARDMESH_TRY(rule.what, key_pattern::compile(text.substr(0, equals)));
  }
  return rule;
}

std::string to_string(const quantize_rule& rule) {
  return fmt::format("{}{}{}", rule.what ? rule.what->text() : "", rule.what ? "=" : "", traits_of(rule.type).name);
}

}  // namespace shardmesh
