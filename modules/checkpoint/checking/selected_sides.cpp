// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import shardmesh.checkpoint_core;
import :selected_sides;

namespace shardmesh {
namespace {

// Returns the errors of the rules, applied to the keys of both sides. `first` decides the dtype of a key that both
// have.
std::vector<error> errors_of_rules(const checkpoint_reader& first, const checkpoint_reader& second,
                                   const selection_options& options) {
  std::map<std::string_view, selectable> keys;
  for (const checkpoint_reader* reader : {&first, &second}) {
    for (const tensor_entry& tensor : reader->contents().tensors)
      keys.try_emplace(tensor.key, selectable{tensor.key, tensor.type, true});
    for (const object_entry& object : reader->contents().objects)
      keys.try_emplace(object.key, selectable{object.key, dtype::undefined, false});
  }
  std::vector<selectable> candidates;
  for (const auto& [key, candidate] : keys) candidates.push_back(candidate);
  std::vector<error> errors = select_keys(candidates, options).errors;
  // Errors about one key belong to its side: keys of different sides may become equal after renaming.
  std::erase_if(errors, [](const error& e) { return !e.key.empty() || e.code != errc::invalid_argument; });
  return errors;
}

// A rule must match or cast something on at least one side.
result<void> check_rules(const checkpoint_reader& left, const checkpoint_reader& right,
                         const selection_options& options) {
  const std::vector<error> of_left = errors_of_rules(left, right, options);
  if (of_left.empty()) return {};
  const std::vector<error> of_right = errors_of_rules(right, left, options);
  for (const error& e : of_left)
    for (const error& other : of_right)
      if (e.message == other.message) return e;
  return {};
}

result<diff_side> chosen_side(checkpoint_reader& reader, const selection_options& options,
                              std::vector<std::string>& notes) {
  diff_side all = whole_side(reader);
  std::vector<selectable> candidates;
  for (const diff_entry& entry : all.entries) candidates.push_back({entry.key, entry.type, entry.is_tensor});
  selection_result chosen = select_keys(candidates, options);
  if (!chosen.errors.empty()) return std::move(chosen.errors.front());
  for (std::string& note : chosen.notes)
    if (std::find(notes.begin(), notes.end(), note) == notes.end()) notes.push_back(std::move(note));
  diff_side side{reader, {}};
  for (selected& one : chosen.kept) {
    const diff_entry& entry = all.entries[one.index];
    side.entries.push_back({std::move(one.key), entry.index, entry.is_tensor, one.type});
  }
  return side;
}

}  // namespace

result<selected_sides> select_sides(checkpoint_reader& left, checkpoint_reader& right,
                                    const selection_options& selection) {
  SHARDMESH_TRY(check_rules(left, right, selection));
  selection_options of_a_side = selection;
  of_a_side.allow_unused = true;
  std::vector<std::string> notes;
  SHARDMESH_TRY(diff_side left_side, chosen_side(left, of_a_side, notes));
  SHARDMESH_TRY(diff_side right_side, chosen_side(right, of_a_side, notes));
  return selected_sides{std::move(left_side), std::move(right_side), std::move(notes)};
}

}  // namespace shardmesh
