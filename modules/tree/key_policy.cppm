// SPDX-License-Identifier: Apache-2.0
// How nested state becomes named items: PyTorch's two ways, and one that loses nothing.
export module shardmesh.tree:key_policy;

import shardmesh.std;
import shardmesh.core;
import :path;
import :spec;

export namespace shardmesh {

/// Which containers of a tree are entered and which are items themselves, and how items are named.
enum class key_policy : std::uint8_t {
  /// torch.distributed.checkpoint since 2.4: mappings are always descended; a list only when a tensor or a mapping is
  /// somewhere in it (through lists); a tuple never; an empty mapping vanishes; keys are joined with ".".
  torch_dcp,
  /// Up to 2.3: as above, but a mapping without a tensor below it (through mappings and lists) is one item.
  torch_dcp_2_3,
  /// Every container is descended, empty ones are items, names are exact spellings of typed paths: nothing collides.
  typed,
};

/// One named item: a leaf, or a container that the policy keeps whole.
struct named_item {
  std::string name;
  path where;
  std::size_t node = 0;        // in the spec
  std::size_t first_leaf = 0;  // its leaves are [first_leaf, first_leaf + leaves)
  std::size_t leaves = 0;
  friend bool operator==(const named_item&, const named_item&) = default;
};

/// The items of a tree, in order; two of them may have one name.
/// \param is_tensor  for each leaf, whether it is a tensor (1) or another object (0). All 0 is what PyTorch calls
///                   `keep_traversing=None`, and any other predicate has its leaves here
/// \errors errc::invalid_argument when `is_tensor` is not as long as the tree has leaves
/// Cost: O(nodes + sum of the items' depths and names). No recursion.
/// Source: torch.distributed.checkpoint._traverse.traverse_state_dict and traverse_state_dict_v_2_3
result<std::vector<named_item>> items_of(const tree_spec& tree, std::span<const std::uint8_t> is_tensor,
                                         key_policy policy);

/// As `items_of`, and every item has a name of its own.
/// \errors errc::duplicate_key naming both typed paths when two items get one name (never with `typed`);
///         errc::invalid_argument as `items_of`
/// Cost: as `items_of`.
/// Source: torch.distributed.checkpoint._nested_dict.flatten_state_dict
result<std::vector<named_item>> flatten(const tree_spec& tree, std::span<const std::uint8_t> is_tensor,
                                        key_policy policy);

/// Which nodes a policy keeps whole (1) rather than enters (0), aligned with the tree's nodes(). What lies below a node
/// that is whole does not count. Precondition: `is_tensor` has one entry per leaf. Cost: O(nodes). No recursion.
std::vector<std::uint8_t> kept_whole(const tree_spec& tree, std::span<const std::uint8_t> is_tensor, key_policy policy);

/// The names alone, for paths that are items already. \errors errc::duplicate_key naming both paths
result<std::vector<std::string>> names_of(std::span<const path> paths, key_policy policy);

}  // namespace shardmesh
