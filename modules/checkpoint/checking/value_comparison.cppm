// SPDX-License-Identifier: Apache-2.0
// Not exported: value_comparer, which compares the elements of two tensors slab by slab, in bounded memory.
module shardmesh.checkpoint:value_comparison;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;
import :diff;

namespace shardmesh {

// Compares tensors of two sides, on several threads at a time. The sides and options must outlive it.
class value_comparer {
 public:
  value_comparer(const diff_side& left, const diff_side& right, const diff_options& options);

  // Returns how the elements of two tensors of one shape differ, read as the dtypes of their entries; nothing if they
  // are equal.
  result<std::optional<key_difference>> compare_values(const diff_entry& a, const diff_entry& b);

 private:
  const diff_side& left_;
  const diff_side& right_;
  const diff_options& options_;
  chunk_source left_source_, right_source_;
};

}  // namespace shardmesh
