// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <plural.hpp>
#include <range/v3/view/iota.hpp>
#include <range/v3/view/zip.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
module shardmesh.state;

import shardmesh.kernels;

namespace shardmesh {
namespace views = ranges::views;

std::string_view name(state_difference_kind kind) {
  constexpr auto names = std::to_array<std::string_view>(
      {"missing left", "missing right", "kind", "dtype", "shape", "layout", "placement", "properties", "value"});
  return names[static_cast<std::size_t>(kind)];
}

std::string to_string(const state_difference& difference) {
  return fmt::format("{}: {}: {}", escaped(to_string(difference.where)), name(difference.kind), difference.text);
}

namespace detail {
namespace {

using kind = state_difference_kind;

value_difference against(kind what, std::string_view a, std::string_view b) {
  return {what, fmt::format("{} against {}", a, b)};
}

std::string shortened(std::string_view text) {
  constexpr std::size_t most = 60;
  if (text.size() <= most) return json_quoted(text);
  return fmt::format("{}... of {} bytes", json_quoted(text.substr(0, most)), text.size());
}

std::string placement_text(const shard_metadata& shard) {
  return shard.placement ? to_string(*shard.placement) : "no device";
}

std::string boxes_text(const shard_metadata& shard) {
  if (shard.offsets.rank() == shard.sizes.rank()) return to_string(shard.where());
  return to_string(shard);
}

std::optional<value_difference> difference_of_properties(tensor_properties a, const tensor_properties& b) {
  a.type = b.type;
  if (a == b) return std::nullopt;
  return against(kind::properties, to_string(a), to_string(b));
}

bool is_same_memory(const const_tensor_view& a, const const_tensor_view& b) {
  return a.data == b.data && a.strides == b.strides && a.where == b.where;
}

}  // namespace

value_difference values_differ(std::string_view a, std::string_view b) {
  return against(kind::value, a, b);
}
value_difference kinds_differ(std::string_view a, std::string_view b) {
  return against(kind::kind, a, b);
}
value_difference ranks_differ(std::string_view what, std::int64_t a, std::int64_t b) {
  return {kind::placement, fmt::format("{} {} against {}", what, a, b)};
}
value_difference in_shard(value_difference difference, const shard_metadata& shard) {
  difference.text = fmt::format("shard {}: {}", boxes_text(shard), difference.text);
  return difference;
}

std::optional<value_difference> difference_of_text(const std::string& a, const std::string& b) {
  if (a == b) return std::nullopt;
  return values_differ(shortened(a), shortened(b));
}

std::optional<value_difference> difference_of_bytes(std::span<const std::byte> a, std::span<const std::byte> b) {
  if (a.size() != b.size()) return values_differ(detail::counted(a.size(), "byte"), detail::counted(b.size(), "byte"));
  const auto first = std::mismatch(a.begin(), a.end(), b.begin());
  if (first.first == a.end()) return std::nullopt;
  return value_difference{kind::value,
                          fmt::format("{} bytes, which differ at byte {}", a.size(), first.first - a.begin())};
}

std::optional<value_difference> difference_of_doubles(double a, double b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return std::nullopt;
  return values_differ(fmt::format("{}", a), fmt::format("{}", b));
}

std::optional<value_difference> difference_of(const opaque_object& a, const opaque_object& b) {
  if (a.type_name != b.type_name) return kinds_differ(shortened(a.type_name), shortened(b.type_name));
  return difference_of_bytes(a.bytes, b.bytes);
}

std::optional<value_difference> difference_of(const compared_tensor& a, const compared_tensor& b, bool values) {
  if (a.view.type != b.view.type) return against(kind::dtype, name(a.view.type), name(b.view.type));
  if (a.view.sizes != b.view.sizes) return against(kind::shape, to_string(a.view.sizes), to_string(b.view.sizes));
  if (a.view.where != b.view.where) return against(kind::placement, to_string(a.view.where), to_string(b.view.where));
  if (auto differs = difference_of_properties(a.properties, b.properties)) return differs;
  if (!values || is_same_memory(a.view, b.view)) return std::nullopt;
  const auto left = on_host(a.view), right = on_host(b.view);
  if (!left) return value_difference{kind::value, to_string(left.error())};
  if (!right) return value_difference{kind::value, to_string(right.error())};
  const auto compared = compare(left->view, right->view);
  if (!compared) return value_difference{kind::value, to_string(compared.error())};
  if (compared->equal()) return std::nullopt;
  return value_difference{kind::value, fmt::format("{} of {} elements differ, first at {}: {} against {}",
                                                   compared->different, numel(a.view), to_string(compared->first_index),
                                                   value_text(left->view, compared->first_index),
                                                   value_text(right->view, compared->first_index))};
}

std::optional<value_difference> difference_of(const sharded_tensor_metadata& a, const rank_group& a_group,
                                              const sharded_tensor_metadata& b, const rank_group& b_group) {
  if (a.properties.type != b.properties.type)
    return against(kind::dtype, name(a.properties.type), name(b.properties.type));
  if (a.size != b.size) return against(kind::shape, to_string(a.size), to_string(b.size));
  if (a.shards.size() != b.shards.size())
    return against(kind::layout, detail::counted(a.shards.size(), "shard"), detail::counted(b.shards.size(), "shard"));
  const auto pairs = views::zip(views::iota(0), a.shards, b.shards);
  for (const auto& [i, left, right] : pairs)
    if (left.offsets != right.offsets || left.sizes != right.sizes)
      return against(kind::layout, fmt::format("shard {} {}", i, boxes_text(left)), boxes_text(right));
  for (const auto& [i, left, right] : pairs)
    if (left.placement != right.placement)
      return against(kind::placement, fmt::format("shard {} on {}", i, placement_text(left)), placement_text(right));
  if (a_group != b_group)
    return against(kind::placement, fmt::format("group {}", to_string(a_group)), to_string(b_group));
  return difference_of_properties(a.properties, b.properties);
}

std::optional<value_difference> difference_of(const layout& a, const layout& b) {
  if (a.shape() != b.shape()) return against(kind::shape, to_string(a.shape()), to_string(b.shape()));
  if (a == b) return std::nullopt;
  std::string left = to_string(a), right = to_string(b);
  if (left == right) left = "layouts with different rank numbers or split rules: " + left;
  return against(kind::layout, left, right);
}

}  // namespace detail
}  // namespace shardmesh
