// SPDX-License-Identifier: Apache-2.0
// Not exported: the transfers that fill the tensors of one convention from those of another. It handles descriptions
// only; memory is in mapped_memory.
module shardmesh.mapping:mapped_moves;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import shardmesh.transfer;
import shardmesh.checkpoint_core;
import :binding;
import :element_pieces;
import :mapped_objects;
import :model_sizes;
import :piece_sides;
import :rules;

namespace shardmesh {

// A tensor that ranks hold, without its memory.
struct held_tensor {
  std::string key;
  distribution where;
  dtype type = dtype::undefined;
};

// A target that equals a source: its transfer has the slots of both tensors.
struct whole_move {
  std::size_t source = 0, target = 0, transfer = 0;
};

// A target's elements that come from one piece. Its transfers have the slots of `piece_sides`.
struct piece_move {
  std::size_t target = 0;
  dtype type = dtype::undefined;  // of the sources
  element_piece piece;
  std::vector<std::size_t> sources;  // the target gets the first; the others must be equal. None: filler
  std::size_t transfer = 0;          // the first of one transfer for each source
  target_side side;
  bool is_staged = false;  // the transfers fill memory of their own, in the dtype of the sources
};

// A tied source, which is compared with its partner. If their layouts differ, a transfer brings the partner's elements
// to the ranks that hold the tied tensor.
struct tie_move {
  std::size_t tied = 0, partner = 0;
  std::optional<std::size_t> transfer;
};

// A tied target in the layout of its partner, which each rank fills from its own part of the partner.
struct tied_copy {
  std::size_t tied = 0, partner = 0;
};

// The transfers, with the text that names each in errors. It also has the operations on values, so that ranks with
// different mappings disagree.
struct mapped_moves {
  std::vector<std::string> keys;
  std::vector<tensor_transfer> transfers;
  std::vector<whole_move> wholes;
  std::vector<piece_move> pieces;
  std::vector<tie_move> ties;
  std::vector<tied_copy> copies;
};

// A mapping that renames the parameters in lists of an optimizer.
struct list_mapping {
  bound_mapping bound;
  catalog sources;
  instances_by_key instances;
};

// A list, and a mapping through which it passes.
struct traced_list {
  std::shared_ptr<const list_mapping> through;
  bound_list list;
};

// An object under the last convention. Its sources are objects of the first catalog, which must be equal.
struct traced_object {
  std::string key;
  std::vector<std::size_t> sources;
  std::vector<traced_list> lists;  // in order; empty for an object that lists no parameters
};

// Two sources of which the mappings use only the second, because both have the same elements.
struct tied_sources {
  std::size_t tied = 0, partner = 0;
};

// The tensors and objects under the last convention.
struct traced_mapping {
  std::vector<target_elements> tensors;
  std::vector<traced_object> objects;
  std::vector<tied_sources> ties;
  std::optional<error> untraced_tie;  // of tensors that are not sources
  std::vector<std::string> notes;     // of all mappings, for the user
};

// Applies the mappings to the description of sources, in order.
// \errors those of `check_given_sizes`, `bind_mapping`, and `chained`
result<traced_mapping> traced(const catalog& sources, std::span<const mapping_rules> mappings,
                              const model_sizes& sizes);

// Describes sources as a checkpoint. \errors errc::duplicate_key; for each tensor, with its key, errc::gap,
// errc::overlap, and errc::unsupported (a tensor of items)
result<catalog> catalog_of(std::span<const held_tensor> sources);

// Makes the transfers.
// \param copies  targets that `made` lacks, because they are filled from others
// \errors one problem for each key, of which the first 100 are kept: errc::missing_key (a target that the mappings do not
//         make, or one that they make and no rank wants), errc::duplicate_key, errc::shape_mismatch, errc::narrowing,
//         errc::unsupported (a Partial target that is computed)
result<mapped_moves> moves_between(std::span<const held_tensor> from, std::span<const held_tensor> to,
                                   const std::vector<target_elements>& made, std::vector<tied_copy> copies,
                                   bool allow_narrowing);

// Adds the comparisons of tied sources. \errors errc::unsupported for tied tensors that an earlier mapping computes,
// and for Partial ones in several layouts
result<void> add_ties(mapped_moves& moves, std::span<const held_tensor> from, const traced_mapping& through);

}  // namespace shardmesh
