// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <string>
#include <string_view>
module shardmesh.checkpoint;

import shardmesh.gguf;

namespace shardmesh {

result<quantize_rule> parse_quantize_rule(std::string_view text) {
  const std::size_t equals = text.rfind('=');
  const std::string_view spelled = equals == std::string_view::npos ? text : text.substr(equals + 1);
  const gguf::type_traits* const type = gguf::find_type(spelled);
  if (type == nullptr || (!type->is_encoded && type->type != gguf::tensor_type::f32)) {
    const bool is_known = type != nullptr;
    std::string names;
    for (const gguf::type_traits& one : gguf::tensor_types())
      if (one.is_encoded) names += fmt::format("{}, ", one.name);
    return fail(errc::invalid_argument,
                fmt::format("'{}': {}", text, is_known ? "this type is only read" : "no type of GGUF has this name"))
        .with_values(names + "or F32", std::string(spelled));
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
