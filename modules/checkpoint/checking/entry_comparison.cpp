// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import shardmesh.torch_file;
import :compared_entries;
import :entry_comparison;
import :list_gaps;
import :object_comparison;
import :opaque_comparison;
import :stored_items;

namespace shardmesh {
namespace {

// The entries of a wrapper that is called `key` in its checkpoint, renamed to be below `shown`.
diff_side side_of(const torch_file::tensor_components& parts, std::string_view key, const std::string& shown) {
  diff_side side{*parts.in, {}};
  const catalog& contents = parts.in->contents();
  const auto below = [&](const std::string& part) { return shown + part.substr(key.size()); };
  for (const std::size_t i : parts.tensors)
    side.entries.push_back({below(contents.tensors[i].key), i, true, contents.tensors[i].type});
  side.entries.push_back({below(contents.objects[parts.description].key), parts.description, false, dtype::undefined});
  return side;
}

}  // namespace

entry_comparer::entry_comparer(const diff_side& left, const diff_side& right, const diff_options& options)
    : left_(left), right_(right), options_(options), values_(left, right, options) {}

void entry_comparer::find_components(const pairs_by_key& pairs) {
  const auto is_wrapper = [](const diff_side& side, const diff_entry* entry) {
    return entry != nullptr && entry->is_tensor && !tensor_of(side, *entry).opaque_type.empty();
  };
  if (std::none_of(pairs.begin(), pairs.end(), [&](const auto& pair) {
        return is_wrapper(left_, pair.second.first) && is_wrapper(right_, pair.second.second);
      }))
    return;
  // Opening fails if an entry has the name of a component. Then the stored bytes are compared.
  if (auto found = torch_file::wrapping_tensors::open(left_.reader)) left_wrappers_ = *std::move(found);
  if (auto found = torch_file::wrapping_tensors::open(right_.reader)) right_wrappers_ = *std::move(found);
}

void entry_comparer::find_gaps(const pairs_by_key& pairs) {
  const auto is_element = [](const diff_side& side, const diff_entry* entry) {
    return path_in_list(side, entry) != nullptr;
  };
  if (std::any_of(pairs.begin(), pairs.end(),
                  [&](const auto& pair) { return !pair.second.second && is_element(left_, pair.second.first); }))
    right_lists_ = lists_of(right_.reader.contents());
  if (std::any_of(pairs.begin(), pairs.end(),
                  [&](const auto& pair) { return !pair.second.first && is_element(right_, pair.second.second); }))
    left_lists_ = lists_of(left_.reader.contents());
}

result<std::vector<key_difference>> entry_comparer::compare_pair(const pair_of_entries& both) {
  const auto& [a, b] = both;
  if (!a || !b) {
    SHARDMESH_TRY(const bool is_equal, a ? is_gap(left_, *a, right_lists_) : is_gap(right_, *b, left_lists_));
    if (is_equal) return std::vector<key_difference>{};
    return std::vector{a ? difference_at(a->key, difference_kind::only_left, "only on the left")
                         : difference_at(b->key, difference_kind::only_right, "only on the right")};
  }
  if (a->is_tensor != b->is_tensor) {
    // An object that cannot be read could be a tensor.
    const auto value = a->is_tensor ? of_side(right_, right_.reader.read_object(b->index))
                                    : of_side(left_, left_.reader.read_object(a->index));
    if (!value) return value.error();
    return std::vector{
        difference_at(a->key, difference_kind::kind,
                      fmt::format("{} on the left, {} on the right", a->is_tensor ? "a tensor" : "an object",
                                  b->is_tensor ? "a tensor" : "an object"))};
  }
  return a->is_tensor ? compare_tensors(*a, *b) : compare_objects(left_, *a, right_, *b);
}

result<std::vector<key_difference>> entry_comparer::compare_tensors(const diff_entry& a, const diff_entry& b) {
  const tensor_entry& left = tensor_of(left_, a);
  const tensor_entry& right = tensor_of(right_, b);
  const bool are_opaque = !left.opaque_type.empty() && !right.opaque_type.empty();
  if (are_opaque) {
    SHARDMESH_TRY(auto outcome, compare_components(a, b));
    if (outcome) return *std::move(outcome);
  }
  SHARDMESH_TRY(auto kinds, compare_kinds(a, b));
  if (kinds) return std::vector{*std::move(kinds)};
  std::vector<key_difference> all;
  // The shape and dtype of an opaque tensor inside a .pt file are unknown.
  if (!are_opaque || (left.chunk_count > 0 && right.chunk_count > 0)) {
    if (left.shape != right.shape)
      return std::vector{
          difference_at(a.key, difference_kind::shape,
                        fmt::format("shape {} against {}", to_string(left.shape), to_string(right.shape)))};
    if (a.type != b.type && !options_.ignore_dtype)
      all.push_back(
          difference_at(a.key, difference_kind::dtype, fmt::format("dtype {} against {}", name(a.type), name(b.type))));
    if (options_.layout && boxes_of(left_.reader.contents(), left) != boxes_of(right_.reader.contents(), right))
      all.push_back(difference_at(a.key, difference_kind::layout,
                                  fmt::format("{} chunk{} against {}, or different boxes", left.chunk_count,
                                              left.chunk_count == 1 ? "" : "s", right.chunk_count)));
  }
  if (!are_opaque && a.type != b.type && !options_.ignore_dtype) return all;
  SHARDMESH_TRY(auto contents, are_opaque ? compare_opaque_tensors(left_, a, right_, b) : values_.compare_values(a, b));
  if (contents) all.push_back(*std::move(contents));
  return all;
}

result<std::optional<key_difference>> entry_comparer::compare_kinds(const diff_entry& a, const diff_entry& b) const {
  const tensor_entry& left = tensor_of(left_, a);
  const tensor_entry& right = tensor_of(right_, b);
  std::optional<key_difference> found;
  if (left.opaque_type == right.opaque_type) return found;
  const bool left_opaque = !left.opaque_type.empty(), right_opaque = !right.opaque_type.empty();
  if (left_opaque != right_opaque) {
    // An archive that cannot be opened could be of either kind.
    const diff_side& plain_side = left_opaque ? right_ : left_;
    const tensor_entry& plain = left_opaque ? right : left;
    if (plain.chunk_count > 0)
      SHARDMESH_TRY(of_side(plain_side, plain_side.reader.open_chunk(plain, plain.first_chunk)));
  }
  const auto shown = [](const tensor_entry& t) { return t.opaque_type.empty() ? "a plain tensor" : t.opaque_type; };
  found = difference_at(a.key, difference_kind::kind,
                        fmt::format("{} on the left, {} on the right", shown(left), shown(right)));
  return found;
}

result<std::optional<std::vector<key_difference>>> entry_comparer::compare_components(const diff_entry& a,
                                                                                      const diff_entry& b) const {
  using all_found = std::optional<std::vector<key_difference>>;
  const auto left = left_wrappers_ ? left_wrappers_->components_of(a.index) : std::nullopt;
  const auto right = right_wrappers_ ? right_wrappers_->components_of(b.index) : std::nullopt;
  if (!left || !right) return all_found();
  const diff_side left_side = side_of(*left, tensor_of(left_, a).key, a.key);
  const diff_side right_side = side_of(*right, tensor_of(right_, b).key, b.key);
  entry_comparer compare_parts(left_side, right_side, options_);
  std::vector<key_difference> all;
  for (const auto& [key, both] : pairs_of(left_side, right_side)) {
    const bool are_descriptions = both.first && both.second && !both.first->is_tensor && !both.second->is_tensor;
    SHARDMESH_TRY(std::vector<key_difference> found,
                  are_descriptions ? compare_descriptions(left_side, *both.first, right_side, *both.second)
                                   : compare_parts.compare_pair(both));
    std::move(found.begin(), found.end(), std::back_inserter(all));
  }
  return all_found(std::move(all));
}

}  // namespace shardmesh
