// SPDX-License-Identifier: Apache-2.0
// Not exported: entry_comparer, which compares entries of two sides: which side has them, what they are, their
// dtypes, shapes, and chunks. Elements, stored bytes, and objects are in `value_comparison`, `opaque_comparison`, and
// `object_comparison`.
module shardmesh.checkpoint:entry_comparison;

import shardmesh.std;
import shardmesh.core;
import shardmesh.torch_file;
import :compared_entries;
import :diff;
import :list_gaps;
import :value_comparison;

namespace shardmesh {

// Compares entries of two sides, on several threads at a time. The sides and options must outlive it.
class entry_comparer {
 public:
  entry_comparer(const diff_side& left, const diff_side& right, const diff_options& options);

  // Prepares to compare wrapping tensors that both sides have by their components.
  void find_components(const pairs_by_key& pairs);

  // A list position that no entry names is None in formats that nest, because PyTorch's flattening loses empty dicts.
  // After this call, the two compare equal.
  void find_gaps(const pairs_by_key& pairs);

  result<std::vector<key_difference>> compare_pair(const pair_of_entries& both);

 private:
  result<std::vector<key_difference>> compare_tensors(const diff_entry& a, const diff_entry& b);

  // Returns a difference if one tensor is plain and the other opaque, or if their opaque types differ.
  result<std::optional<key_difference>> compare_kinds(const diff_entry& a, const diff_entry& b) const;

  // Compares the wrappers of both sides by their components. Returns nothing if either side's components are unknown.
  result<std::optional<std::vector<key_difference>>> compare_components(const diff_entry& a, const diff_entry& b) const;

  const diff_side& left_;
  const diff_side& right_;
  const diff_options& options_;
  value_comparer values_;
  std::optional<torch_file::wrapping_tensors> left_wrappers_, right_wrappers_;
  list_ends left_lists_, right_lists_;
};

}  // namespace shardmesh
