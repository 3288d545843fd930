// SPDX-License-Identifier: Apache-2.0
// `redistribute` between two conventions: the tensors that ranks hold under the names of one become those of another,
// in the layouts that the receivers want. No rank assembles a tensor. Moves under one name are in room transfer.
export module shardmesh.mapping:redistribute_mapped;

import shardmesh.std;
import shardmesh.core;
import shardmesh.comm;
import shardmesh.layout;
import shardmesh.transfer;
import :model_sizes;
import :rules;

export namespace shardmesh {

/// A tensor under one convention: its name, and its place on the ranks with this rank's memory (`side_of`).
template <tensor_view_type View>
struct basic_named_side {
  std::string key;
  basic_tensor_side<View> side;
};

/// A tensor that is read: a source of a redistribution with a mapping.
using named_source = basic_named_side<const_tensor_view>;
/// A tensor that is filled: a target of a redistribution with a mapping.
using named_target = basic_named_side<tensor_view>;

/// Moves the tensors of one convention into those of another. Collective; blocks. Every rank calls it with the same
/// keys, distributions, and dtypes in the same order, and with the same mappings and sizes. `bind_mapping` proves on
/// every rank that each element is used and made once, before anything moves. Then all tensors move together, as in
/// `redistribute` of `tensor_move`s: each rank receives the elements that its targets need and that it lacks, each
/// once.
///
/// Names, segments, stacks, transposes, and other index operations cost nothing: the pieces move between strided
/// memory. Elements that a target repeats arrive once, and are copied on the rank. Repetitions in the sources all
/// arrive, and are compared bit for bit. Filler is zero. Operations on values are computed on the receiving rank, in
/// the dtype of the sources, before a cast.
///
/// Tied sources are compared bit for bit, unless they share their memory; only a partner in another layout travels. The
/// targets may also have names that the last convention ties: each equals its partner, and may share its memory.
///
/// \param from      all tensors of the first convention: as for a checkpoint, a mapping uses or names each of them
/// \param to        all tensors that the mappings make, in any layouts that do not cut inside a byte, and any tied ones
/// \param mappings  applied in order, as in `map_checkpoint`. The tensors between them are never made.
/// \errors the same on every rank. Before anything moves: those of `check_given_sizes` and `bind_mapping`;
///         errc::missing_key for a target that is not made, and for a tensor that is made without a target;
///         errc::gap and errc::overlap for a source; errc::duplicate_key; errc::shape_mismatch; errc::narrowing;
///         errc::unsupported (a Partial target that is computed, tied Partial sources in two layouts, a chain of
///         mappings that divides a tensor into more than 65,536 pieces); those of `redistribute` of `tensor_move`s,
///         whose keys are "SOURCE -> TARGET". Afterwards: errc::disagreement for repetitions and tied sources that
///         differ; errc::invalid_argument for a finite value that
///         the operations turn into NaN or infinity, with the target, its element, and the rank. The targets then hold
///         unspecified values.
/// Cost: two all_gathers, and O(pieces of all tensors) on each rank for the plan. Beside the memory of `options`: this
///       rank's parts of targets with operations on values, and of repeated elements, in the dtype of their sources; and
///       of tied sources in another layout than their partner.
result<redistribute_report> redistribute(std::span<const named_source> from, std::span<const named_target> to,
                                         std::span<const mapping_rules> mappings, const model_sizes& sizes,
                                         communicator_ref comm, const redistribute_options& options = {});

/// Plans the same move. The memory of the sides has no effect. A target has one transfer for each of its pieces, whose
/// dimensions are the piece's loops.
/// \errors those of `redistribute` before anything moves, on this rank
/// Cost: O(pieces of all tensors). No communication.
result<transfer_plan> plan(std::span<const named_source> from, std::span<const named_target> to,
                           std::span<const mapping_rules> mappings, const model_sizes& sizes,
                           const plan_options& options = {});

}  // namespace shardmesh
