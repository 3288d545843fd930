// SPDX-License-Identifier: Apache-2.0
// Not exported: which values of an item have a tensor below them. Not here: what becomes of them (object_parts).
module shardmesh.torch_file:tensor_search;

import shardmesh.std;
import shardmesh.core;
import shardmesh.pickle;
import :item;

namespace shardmesh::torch_file {

// A tensor, also one of a representation that we do not know.
bool is_tensor(const torch_file::item& item, const pickle::value& value);

// Every value is looked at once, however many ask; no recursion.
class tensor_search {
 public:
  explicit tensor_search(const torch_file::item& item) : item_(item) {}

  // Cost of all calls together: O(values).
  bool holds(const pickle::value& value);

  // A tensor or a storage: what the search looks for.
  bool is_end(const pickle::value& value) const;

  // Number of tensors and storages below `value` that have no name; of them all, `budget` values are looked at.
  std::int64_t count_below(const pickle::value& value, function_ref<bool(const pickle::value&)> is_named,
                           std::size_t& budget) const;

 private:
  void explore(const pickle::value& root);

  const item& item_;
  std::unordered_map<std::uint64_t, bool> known_;
};

}  // namespace shardmesh::torch_file
