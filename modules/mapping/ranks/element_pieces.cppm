// SPDX-License-Identifier: Apache-2.0
// Not exported: the elements of each target of a mapping, tensor by tensor. Reads of a checkpoint work with the
// relations of a `bound_mapping`, in which stacked tensors are one. Moves between ranks need the single tensors,
// because each has a distribution of its own.
module shardmesh.mapping:element_pieces;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;
import :binding;
import :index_relation;
import :value_step;

namespace shardmesh {

// The operations on values, one list for each mapping of a chain that has any, in order. The values are rounded to the
// dtype at the end of each list.
using value_stages = std::vector<std::vector<value_step>>;

// The `source` of a piece of filler: filler comes from no tensor.
inline constexpr std::size_t no_source = static_cast<std::size_t>(-1);

// The elements that a target shares with one source, or a region of its filler.
struct element_piece {
  std::size_t source = no_source;
  index_piece where;  // left: the source, right: the target. Of filler, only the right side has a meaning.
  value_stages values;
};

// A target, and the sources of its elements.
struct target_elements {
  std::string key;
  dtype type = dtype::undefined;  // of its sources; undefined if it has none
  extents shape;
  /// The source that the target equals, up to `values`, which apply to it. Otherwise `pieces` tile the target.
  std::optional<std::size_t> whole;
  value_stages values;
  std::vector<std::size_t> equals;  // further sources that must equal `whole`
  std::vector<element_piece> pieces;
};

// Joins loops that continue each other on both sides.
std::vector<index_loop> joined_loops(std::vector<index_loop> loops);

// Restricts a piece to one tensor of a stacked target. The leading dimensions of the right side number the stacked
// tensors; `stacked` is the tensor's index in them. The loops of the result do not move in these dimensions. Returns
// nothing if the piece has no element of that tensor.
std::optional<index_piece> piece_within(const index_piece& piece, const extents& stacked);

// Lists the targets of a mapping: those of `bound.tensors`, then the unchanged tensors of an optimizer.
// \param source  the catalog to which the mapping is bound
// Cost: O(pieces of all targets); each member of a stacked source makes a piece.
std::vector<target_elements> elements_of(const bound_mapping& bound, const catalog& source);

// Lists the tensors of a catalog, each as its own source.
std::vector<target_elements> elements_of(const catalog& source);

// Describes a tensor without chunks, so that a mapping can be bound to it.
tensor_entry entry_of(const std::string& key, dtype type, const extents& shape);

// Describes the targets, so that another mapping can be bound to them.
catalog catalog_of(std::span<const target_elements> targets);

}  // namespace shardmesh
