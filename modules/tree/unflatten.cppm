// SPDX-License-Identifier: Apache-2.0
// unflatten: the tree that a set of paths describes. Existing trees are flattened by `flatten_tree`.
export module shardmesh.tree:unflatten;

import shardmesh.std;
import shardmesh.core;
import :key_policy;
import :path;
import :spec;

export namespace shardmesh {

/// Limits on the leaves that `unflatten` may invent when paths name only some indices of a container.
struct unflatten_options {
  /// The maximum number of leaves to invent in sequences; none by default. With a maximum above 0, a container whose
  /// keys are all indices (>= 0) becomes a sequence. Indices that no path names become leaves without a path. PyTorch
  /// does the same when flattening has lost an empty mapping in a list. With 0, such a container becomes a mapping.
  std::int64_t max_holes = 0;
};

/// A tree and its leaves. `leaf_order[i]` is the index of the path of leaf i, or `unflattened::hole`.
struct unflattened {
  static constexpr std::size_t hole = static_cast<std::size_t>(-1);
  tree_spec spec;
  std::vector<std::size_t> leaf_order;
};

/// Builds the tree whose leaves have these paths, in any order. Containers whose keys are the indices 0 .. n-1 become
/// sequences; all others become mappings, with keys in order of first appearance. No paths make an empty mapping.
/// \errors errc::duplicate_key, or errc::invalid_argument when a path continues below the leaf of another, both naming
///         the paths; errc::invalid_argument when the sequences need more holes than a `max_holes` above 0;
///         errc::overflow for too many nodes (2^32 - 1)
/// Cost: O(total length). No recursion.
/// Source: torch.distributed.checkpoint._nested_dict.unflatten_state_dict
result<unflattened> unflatten(std::span<const path> paths, const unflatten_options& options = {});
/// Builds the tree from the paths of items; containers that were kept whole are leaves.
result<unflattened> unflatten(std::span<const named_item> items, const unflatten_options& options = {});

}  // namespace shardmesh
