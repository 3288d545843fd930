// SPDX-License-Identifier: Apache-2.0
module;
#include <map>
#include <string>
#include <string_view>
#include <utility>
module shardmesh.checkpoint;

import shardmesh.checkpoint_core;
import :compared_entries;

namespace shardmesh {

pairs_by_key pairs_of(const diff_side& left, const diff_side& right) {
  pairs_by_key by_key;
  for (const diff_entry& entry : left.entries) by_key[entry.key].first = &entry;
  for (const diff_entry& entry : right.entries) by_key[entry.key].second = &entry;
  return by_key;
}

key_difference difference_at(const std::string& key, difference_kind kind, std::string text) {
  key_difference made;
  made.key = key;
  made.kind = kind;
  made.text = std::move(text);
  return made;
}

const tensor_entry& tensor_of(const diff_side& side, const diff_entry& entry) {
  return side.reader.contents().tensors[entry.index];
}

}  // namespace shardmesh
