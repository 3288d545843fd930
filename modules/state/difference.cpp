// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <plural.hpp>
#include <range/v3/view/iota.hpp>
#include <range/v3/view/zip.hpp>

#include <algorithm>
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

std::string to_string(const path_difference& found) {
  return fmt::format("{}: {}", escaped(to_string(found.where)), found.text);
}

namespace detail {
namespace {

using kind = difference_kind;

difference found(kind what, std::string text) {
  difference made;
  made.kind = what;
  made.text = std::move(text);
  return made;
}

// "dtype float32 against bfloat16"
difference against(kind what, std::string_view a, std::string_view b) {
  return found(what, fmt::format("{} {} against {}", name(what), a, b));
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

std::optional<difference> difference_of_properties(tensor_properties a, const tensor_properties& b) {
  a.type = b.type;
  if (a == b) return std::nullopt;
  return against(kind::properties, to_string(a), to_string(b));
}

difference unreadable(const error& cause) {
  return found(kind::unreadable, "cannot be read: " + to_string(cause));
}

bool is_same_memory(const const_tensor_view& a, const const_tensor_view& b) {
  return a.data == b.data && a.strides == b.strides && a.where == b.where;
}

}  // namespace

difference objects_differ(std::string_view a, std::string_view b) {
  return found(kind::object, fmt::format("{} against {}", a, b));
}
difference kinds_differ(std::string_view a, std::string_view b) {
  return found(kind::kind, fmt::format("{} against {}", a, b));
}
difference only_on(kind side, std::string_view what) {
  return found(side, fmt::format("only on the {}: {}", side == kind::only_left ? "left" : "right", what));
}
difference ranks_differ(std::string_view what, std::int64_t a, std::int64_t b) {
  return found(kind::placement, fmt::format("{} {} against {}", what, a, b));
}
difference in_shard(difference found, const shard_metadata& shard) {
  found.text = fmt::format("shard {}: {}", boxes_text(shard), found.text);
  return found;
}

std::optional<difference> difference_of_text(const std::string& a, const std::string& b) {
  if (a == b) return std::nullopt;
  return objects_differ(shortened(a), shortened(b));
}

std::optional<difference> difference_of_bytes(std::span<const std::byte> a, std::span<const std::byte> b) {
  if (a.size() != b.size()) return objects_differ(detail::counted(a.size(), "byte"), detail::counted(b.size(), "byte"));
  const auto first = std::mismatch(a.begin(), a.end(), b.begin());
  if (first.first == a.end()) return std::nullopt;
  return found(kind::object, fmt::format("{}, which differ{} at byte {}", detail::counted(a.size(), "byte"),
                                         a.size() == 1 ? "s" : "", first.first - a.begin()));
}

std::optional<difference> difference_of_doubles(double a, double b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return std::nullopt;
  return objects_differ(fmt::format("{}", a), fmt::format("{}", b));
}

std::optional<difference> difference_of(const opaque_object& a, const opaque_object& b) {
  if (a.type_name != b.type_name) return objects_differ(shortened(a.type_name), shortened(b.type_name));
  return difference_of_bytes(a.bytes, b.bytes);
}

std::optional<difference> difference_of(const compared_tensor& a, const compared_tensor& b, bool values) {
  if (a.view.type != b.view.type) return against(kind::dtype, name(a.view.type), name(b.view.type));
  if (a.view.sizes != b.view.sizes) return against(kind::shape, to_string(a.view.sizes), to_string(b.view.sizes));
  if (a.view.where != b.view.where) return against(kind::placement, to_string(a.view.where), to_string(b.view.where));
  if (auto differs = difference_of_properties(a.properties, b.properties)) return differs;
  if (!values || is_same_memory(a.view, b.view)) return std::nullopt;
  const auto left = on_host(a.view), right = on_host(b.view);
  if (!left) return unreadable(left.error());
  if (!right) return unreadable(right.error());
  const auto compared = compare(left->view, right->view);
  if (!compared) return unreadable(compared.error());
  if (compared->equal()) return std::nullopt;
  difference made =
      found(kind::values,
            fmt::format("{} of {} {}, first at {}: {} against {}", compared->different, numel(a.view),
                        numel(a.view) == 1 ? "element differs" : "elements differ", to_string(compared->first_index),
                        value_text(left->view, compared->first_index), value_text(right->view, compared->first_index)));
  made.different = compared->different;
  made.elements = numel(a.view);
  made.first_index = compared->first_index;
  made.largest = compared->largest_difference;
  return made;
}

std::optional<difference> difference_of(const sharded_tensor_metadata& a, const rank_group& a_group,
                                        const sharded_tensor_metadata& b, const rank_group& b_group) {
  if (a.properties.type != b.properties.type)
    return against(kind::dtype, name(a.properties.type), name(b.properties.type));
  if (a.size != b.size) return against(kind::shape, to_string(a.size), to_string(b.size));
  if (a.shards.size() != b.shards.size())
    return found(kind::layout, fmt::format("{} against {}", detail::counted(a.shards.size(), "shard"),
                                           detail::counted(b.shards.size(), "shard")));
  const auto pairs = views::zip(views::iota(0), a.shards, b.shards);
  for (const auto& [i, left, right] : pairs)
    if (left.offsets != right.offsets || left.sizes != right.sizes)
      return found(kind::layout, fmt::format("shard {} {} against {}", i, boxes_text(left), boxes_text(right)));
  for (const auto& [i, left, right] : pairs)
    if (left.placement != right.placement)
      return found(kind::placement,
                   fmt::format("shard {} on {} against {}", i, placement_text(left), placement_text(right)));
  if (a_group != b_group)
    return found(kind::placement, fmt::format("group {} against {}", to_string(a_group), to_string(b_group)));
  return difference_of_properties(a.properties, b.properties);
}

std::optional<difference> difference_of(const layout& a, const layout& b) {
  if (a.shape() != b.shape()) return against(kind::shape, to_string(a.shape()), to_string(b.shape()));
  if (a == b) return std::nullopt;
  const std::string left = to_string(a), right = to_string(b);
  if (left == right) return found(kind::layout, "layouts with different rank numbers or split rules: " + left);
  return against(kind::layout, left, right);
}

}  // namespace detail
}  // namespace shardmesh
