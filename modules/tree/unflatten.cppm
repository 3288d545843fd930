// SPDX-License-Identifier: Apache-2.0
// unflatten: the tree that a set of paths describes. Not here: trees that exist (flatten_tree).
export module shardmesh.tree:unflatten;

import shardmesh.std;
import shardmesh.core;
import :key_policy;
import :path;
import :spec;

export namespace shardmesh {

/// What `unflatten` may make up where paths name some indices of a container and not others. By default nothing.
struct unflatten_options {
  /// At most this many places may be made up in sequences: with it, a container whose keys are all indices (>= 0)
  /// becomes a sequence, and the indices that no path names become leaves that no path has. That is what PyTorch does
  /// where flattening has lost an empty mapping in a list. 0: nothing is made up, such a container is a mapping.
  std::int64_t max_holes = 0;
};

/// `leaf_order[i]` is which path is leaf i, or `unflattened::hole`.
struct unflattened {
  static constexpr std::size_t hole = static_cast<std::size_t>(-1);
  tree_spec spec;
  std::vector<std::size_t> leaf_order;
};

/// The tree whose leaves have these paths, in any order. Containers whose keys are the indices 0 .. n-1 become
/// sequences, others mappings, in order of first appearance. No paths: an empty mapping.
/// \errors errc::duplicate_key, errc::invalid_argument when one path leads through another, both naming the paths;
///         errc::invalid_argument when the sequences have more holes than `max_holes` (and that is not 0)
/// Cost: O(total length). No recursion.
/// Source: torch.distributed.checkpoint._nested_dict.unflatten_state_dict
result<unflattened> unflatten(std::span<const path> paths, const unflatten_options& options = {});
/// The same from items, by their paths; containers that were kept whole are leaves.
result<unflattened> unflatten(std::span<const named_item> items, const unflatten_options& options = {});

}  // namespace shardmesh
