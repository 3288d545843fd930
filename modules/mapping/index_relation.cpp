// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <plural.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>
module shardmesh.mapping;

import :index_parts;

namespace shardmesh {
namespace {

const side_loop* find_loop(const tensor_part& part, const index_factor& factor) {
  for (const side_loop& loop : part.loops)
    if (loop.factor.name == factor.name) return &loop;
  return nullptr;
}

// Joins the loops of a part's two sides by name.
result<index_piece> join(const std::string& name, const tensor_part& left, const tensor_part& right) {
  index_piece made{left.tensor, right.tensor, left.origin, right.origin, {}};
  const auto add = [&](const index_factor& factor, std::int64_t extent, index_loop::step on_left,
                       index_loop::step on_right, std::string_view lacking) -> result<void> {
    const bool is_alone = on_left.dimension < 0 || on_right.dimension < 0;
    if (is_alone && !factor.repeats && extent != 1)
      return fail(errc::invalid_argument,
                  fmt::format("the {} side of the part '{}' lacks the factor '{}'", lacking, name, factor.name))
          .with_hint(fmt::format("write {0}* if its elements are repeated {0} times", factor.name));
    // Without a repetition, the elements of the other side would have no counterpart.
    if (is_alone && extent == 0)
      return fail(errc::invalid_argument,
                  fmt::format("the factor '{}' of the part '{}' repeats elements 0 times", factor.name, name))
          .with_values("1 or more", "0");
    if (extent != 1) made.loops.push_back({extent, on_left, on_right});
    return {};
  };
  for (const side_loop& loop : left.loops) {
    const side_loop* const partner = loop.factor.name == "1" ? nullptr : find_loop(right, loop.factor);
    if (partner != nullptr && (partner->factor.repeats || loop.factor.repeats))
      return fail(errc::invalid_argument,
                  fmt::format("the factor '{}*' of the part '{}' is on both sides", loop.factor.name, name))
          .with_hint("leave out the '*'");
    SHARDMESH_TRY(add(loop.factor, loop.extent, loop.step, partner ? partner->step : index_loop::step{}, "right"));
  }
  for (const side_loop& loop : right.loops)
    if (loop.factor.name == "1" || find_loop(left, loop.factor) == nullptr)
      SHARDMESH_TRY(add(loop.factor, loop.extent, {}, loop.step, "left"));
  if (made.loops.size() > max_rank)
    return fail(errc::rank_too_large, fmt::format("the part '{}' has too many factors", name))
        .with_values(fmt::format("at most {}", max_rank), fmt::format("{}", made.loops.size()));
  return made;
}

}  // namespace

result<void> infer_sizes(const index_rule& rule, std::span<const std::optional<extents>> left,
                         std::span<const std::optional<extents>> right, named_sizes& sizes) {
  bool has_learned = true;
  const auto learn = [&](const index_tensor& tensor, const std::optional<extents>& shape) -> result<void> {
    if (!shape) return {};
    if (shape->rank() != tensor.dimensions.size())
      return fail(errc::shape_mismatch,
                  fmt::format("'{}' has another number of dimensions than in the rule", tensor.alias))
          .with_values(detail::counted(tensor.dimensions.size(), "dimension"), to_string(*shape));
    for (std::size_t d = 0; d < tensor.dimensions.size(); ++d) {
      std::int64_t known = 1;
      const index_factor* unknown = nullptr;
      bool is_decidable = true;
      for (const index_term& term : tensor.dimensions[d]) {
        const bool is_unknown = term.segments.empty() && term.factor.name != "1" && !sizes.contains(term.factor.name);
        if (is_unknown) {
          is_decidable = is_decidable && unknown == nullptr;
          unknown = &term.factor;
          continue;
        }
        const auto size = size_of(tensor, term, sizes);
        const auto next = size ? checked_multiply(known, *size) : std::nullopt;
        is_decidable = is_decidable && next.has_value();
        known = next.value_or(1);
      }
      if (unknown == nullptr || !is_decidable || known == 0) continue;
      if ((*shape)[d] % known != 0)
        return fail(errc::shape_mismatch,
                    fmt::format("dimension {} of '{}' is not divisible by its known factors", d, tensor.alias))
            .with_values(fmt::format("a multiple of {}", known), fmt::format("{}", (*shape)[d]));
      sizes.emplace(unknown->name, (*shape)[d] / known);
      has_learned = true;
    }
    return {};
  };
  while (std::exchange(has_learned, false)) {
    for (std::size_t i = 0; i < rule.left.size(); ++i) SHARDMESH_TRY(learn(rule.left[i], left[i]));
    for (std::size_t i = 0; i < rule.right.size(); ++i) SHARDMESH_TRY(learn(rule.right[i], right[i]));
  }
  return {};
}

result<index_relation> relate(const index_rule& rule, const named_sizes& sizes) {
  index_relation made;
  parts_by_name left, right;
  for (std::size_t i = 0; i < rule.left.size(); ++i) {
    SHARDMESH_TRY(related_tensor one, add_parts(rule.left[i], i, true, sizes, left));
    made.left.push_back(std::move(one));
  }
  for (std::size_t i = 0; i < rule.right.size(); ++i) {
    SHARDMESH_TRY(related_tensor one, add_parts(rule.right[i], i, false, sizes, right));
    made.right.push_back(std::move(one));
  }
  // If each side has only one part, the two correspond, whatever their names.
  if (left.size() == 1 && right.size() == 1) {
    SHARDMESH_TRY(index_piece piece, join(left.begin()->first, left.begin()->second, right.begin()->second));
    made.pieces.push_back(std::move(piece));
    return made;
  }
  for (const auto& [name, part] : left) {
    const auto partner = right.find(name);
    if (partner == right.end())
      return fail(errc::invalid_argument, fmt::format("the right side of the rule lacks the part '{}'", name));
    SHARDMESH_TRY(index_piece piece, join(name, part, partner->second));
    made.pieces.push_back(std::move(piece));
  }
  for (const auto& [name, part] : right)
    if (!left.contains(name))
      return fail(errc::invalid_argument, fmt::format("the left side of the rule lacks the part '{}'", name));
  std::sort(made.pieces.begin(), made.pieces.end(), [](const index_piece& a, const index_piece& b) {
    return std::tie(a.left_tensor, a.right_tensor, a.right_origin) <
           std::tie(b.left_tensor, b.right_tensor, b.right_origin);
  });
  return made;
}

}  // namespace shardmesh
