// SPDX-License-Identifier: Apache-2.0
// Not exported: the common part of all comparisons of entries: the entries of two sides, paired by key, and errors that
// name their side. The comparisons are in `entry_comparison`.
module shardmesh.checkpoint:compared_entries;

import shardmesh.std;
import shardmesh.core;
import shardmesh.tree;
import shardmesh.checkpoint_core;
import :diff;

namespace shardmesh {

// The entries of both sides with one key; null where a side has none.
using pair_of_entries = std::pair<const diff_entry*, const diff_entry*>;
using pairs_by_key = std::map<std::string_view, pair_of_entries>;

// Pairs the entries of both sides, which must outlive the result.
pairs_by_key pairs_of(const diff_side& left, const diff_side& right);

key_difference difference_at(const std::string& key, difference_kind kind, std::string text);

// The tensor that an entry of a side names.
const tensor_entry& tensor_of(const diff_side& side, const diff_entry& entry);

// Adds the side's path to an error that names no file.
template <class T>
result<T> of_side(const diff_side& side, result<T> outcome) {
  if (outcome || !outcome.error().file.empty()) return outcome;
  return std::move(outcome).error().with_file(side.reader.path().string());
}

}  // namespace shardmesh
