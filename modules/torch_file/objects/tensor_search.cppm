// SPDX-License-Identifier: Apache-2.0
// Finds the values of an item that have a tensor below them. Not exported.
module shardmesh.torch_file:tensor_search;

import shardmesh.std;
import shardmesh.core;
import shardmesh.pickle;
import :item;

namespace shardmesh::torch_file {

// Returns whether the value is a tensor, possibly of an unknown representation.
bool is_tensor(const torch_file::item& item, const pickle::value& value);

// Visits every value once over all calls, without recursion.
class tensor_search {
 public:
  explicit tensor_search(const torch_file::item& item) : item_(item) {}

  // Returns whether there is a tensor or a storage below the value. Cost of all calls together: O(values).
  bool holds(const pickle::value& value);

  // Returns whether the value is a tensor or a storage, where the search ends.
  bool is_end(const pickle::value& value) const;

  // Counts the tensors and storages below `value` that have no name. All calls together visit at most `budget` values.
  std::int64_t count_below(const pickle::value& value, function_ref<bool(const pickle::value&)> is_named,
                           std::size_t& budget) const;

 private:
  void explore(const pickle::value& root);

  const item& item_;
  std::unordered_map<std::uint64_t, bool> known_;
};

}  // namespace shardmesh::torch_file
