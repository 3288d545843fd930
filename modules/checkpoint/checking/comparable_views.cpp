// SPDX-License-Identifier: Apache-2.0
module;
#include <algorithm>
#include <cstddef>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import shardmesh.torch_file;

namespace shardmesh {
namespace {

constexpr int most_levels = 64;

bool has_wrapping_tensors(checkpoint_reader& reader) {
  reader.identify_opaque_tensors();
  const auto& tensors = reader.contents().tensors;
  return std::any_of(tensors.begin(), tensors.end(),
                     [](const tensor_entry& tensor) { return !tensor.opaque_type.empty(); });
}

// True when an entry is below the key.
bool has_below(const std::set<std::string_view>& keys, std::string_view key) {
  const std::string prefix = std::string(key) + ".";
  const auto found = keys.lower_bound(prefix);
  return found != keys.end() && found->starts_with(prefix);
}

std::set<std::string_view> keys_of(const catalog& contents) {
  std::set<std::string_view> keys;
  for (const tensor_entry& tensor : contents.tensors) keys.insert(tensor.key);
  for (const object_entry& object : contents.objects) keys.insert(object.key);
  return keys;
}

// Objects that are several entries on the other side: a dict or list that one format keeps whole and another flattens.
std::vector<std::size_t> flattened_elsewhere(const catalog& contents, const catalog& other) {
  std::vector<std::size_t> whole;
  for (std::size_t i = 0; i < contents.objects.size(); ++i)
    if (other.find_object(contents.objects[i].key) == nullptr && other.find(contents.objects[i].key) == nullptr)
      whole.push_back(i);
  if (whole.empty()) return whole;
  const std::set<std::string_view> keys = keys_of(other);
  std::erase_if(whole, [&](std::size_t i) { return !has_below(keys, contents.objects[i].key); });
  return whole;
}

}  // namespace

comparable_views::comparable_views(checkpoint_reader& left, checkpoint_reader& right) : left_(&left), right_(&right) {
  // A side without another view (null, or an error) is compared unchanged, and the comparison reports the difference.
  const auto show = [this](checkpoint_reader*& side, result<std::unique_ptr<checkpoint_reader>> made) {
    if (!made || !*made) return;
    seen_.push_back(*std::move(made));
    side = seen_.back().get();
  };
  for (checkpoint_reader** side : {&left_, &right_})
    show(*side, torch_file::split_objects(**side, torch_file::to_split::opaque_tensors));
  // The parts of a flattened object may have to be flattened in turn, as in a list of lists.
  for (int round = 0; round < most_levels; ++round) {
    checkpoint_reader *const left_before = left_, *const right_before = right_;
    show(left_, torch_file::flatten_objects(*left_, flattened_elsewhere(left_->contents(), right_->contents())));
    show(right_, torch_file::flatten_objects(*right_, flattened_elsewhere(right_->contents(), left_->contents())));
    if (left_ == left_before && right_ == right_before) break;
  }
  if (!has_wrapping_tensors(*left_) && !has_wrapping_tensors(*right_)) return;
  for (checkpoint_reader** side : {&left_, &right_})
    show(*side, torch_file::wrap_components(**side, torch_file::to_wrap::possible));
}

}  // namespace shardmesh
