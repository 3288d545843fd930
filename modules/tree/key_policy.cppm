// SPDX-License-Identifier: Apache-2.0
// Conversion of nested state to named items: PyTorch's two ways, and one that loses nothing.
export module shardmesh.tree:key_policy;

import shardmesh.std;
import shardmesh.core;
import :path;
import :spec;

export namespace shardmesh {

/// The rules that choose the containers to descend into, those to keep as items, and the items' names.
enum class key_policy : std::uint8_t {
  /// torch.distributed.checkpoint since 2.4. Mappings are always descended into, so an empty one vanishes. Lists are
  /// descended into only when they contain a tensor or a mapping, directly or in nested lists; tuples never. Keys are
  /// joined with ".".
  torch_dcp,
  /// Up to 2.3: as above, but a mapping without a tensor below it (through mappings and lists) is one item.
  torch_dcp_2_3,
  /// Every container is descended into, and empty ones are items. Names are the exact texts of typed paths, so none
  /// collide.
  typed,
};

/// One named item: a leaf, or a container that the policy keeps whole.
struct named_item {
  std::string name;
  path where;
  std::size_t node = 0;        // in the spec
  std::size_t first_leaf = 0;  // the item's leaves are [first_leaf, first_leaf + leaves)
  std::size_t leaves = 0;
  friend bool operator==(const named_item&, const named_item&) = default;
};

/// Returns the items of a tree, in order. Two items may have the same name.
/// \param is_tensor  for each leaf, whether it is a tensor (1) or another object (0). All 0 corresponds to PyTorch's
///                   `keep_traversing=None`; for any other predicate, pass its value for each leaf
/// \errors errc::invalid_argument when the length of `is_tensor` differs from the number of leaves
/// Cost: O(nodes + sum of the items' depths and names). No recursion.
/// Source: torch.distributed.checkpoint._traverse.traverse_state_dict and traverse_state_dict_v_2_3
result<std::vector<named_item>> items_of(const tree_spec& tree, std::span<const std::uint8_t> is_tensor,
                                         key_policy policy);

/// Returns the items as `items_of` does, but requires unique names.
/// \errors errc::duplicate_key naming both typed paths when two items have the same name (never with `typed`);
///         errc::invalid_argument as `items_of`
/// Cost: as `items_of`.
/// Source: torch.distributed.checkpoint._nested_dict.flatten_state_dict
result<std::vector<named_item>> flatten(const tree_spec& tree, std::span<const std::uint8_t> is_tensor,
                                        key_policy policy);

/// Returns for each node, aligned with `nodes()`, whether the policy keeps it whole (1) or descends into it (0). Values
/// below a whole node have no meaning. Precondition: `is_tensor` has one entry per leaf. Cost: O(nodes). No recursion.
std::vector<std::uint8_t> kept_whole(const tree_spec& tree, std::span<const std::uint8_t> is_tensor, key_policy policy);

/// Returns the names of paths that are already items. \errors errc::duplicate_key naming both paths
result<std::vector<std::string>> names_of(std::span<const path> paths, key_policy policy);

}  // namespace shardmesh
