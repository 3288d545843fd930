// SPDX-License-Identifier: Apache-2.0
// `save_mapped` on many ranks: the state that ranks hold under one convention becomes a checkpoint of another. The save
// of one process is in save_mapped; loads need no such call.
export module shardmesh.mapping:save_mapped_ranks;

import shardmesh.std;
import shardmesh.core;
import shardmesh.tree;
import shardmesh.comm;
import shardmesh.checkpoint_core;
import shardmesh.collective_checkpoint;
import :model_sizes;
import :rules;

export namespace shardmesh {

/// Saves the state of all ranks together, under the convention to which the last mapping leads. Collective; blocks.
/// Every rank gets an even part of the new tensors, as in `redistribute` with a mapping: rows of large tensors, and
/// whole tensors of less than 1 MiB. Then the ranks save these parts as in `save`.
///
/// Tied tensors are compared, because one of each pair is not written. Objects of an optimizer's parameters follow
/// them, and lists of parameters get the new names; other objects are unchanged. The selection of `options` applies to
/// the new names.
/// \param destination  the same path on every rank, of one file system that all ranks see
/// \param held         this rank's part, under the names of the first convention. Its memory must not change during the
///                     call.
/// \param mappings     the same on every rank, applied in order
/// \errors the same on every rank, before a file exists: errc::gap, errc::overlap, errc::shape_mismatch,
///         errc::dtype_mismatch, errc::out_of_bounds, and errc::duplicate_key for tensors of the state, with the key;
///         those of `redistribute` with a mapping; errc::unsupported for parameters of different groups that a rule
///         joins; errc::disagreement for joined objects and for tied tensors that differ. Then those of `save`.
/// Cost: as `redistribute` with a mapping and `save`, one all_gather of all ranks' boxes, and one of the bindings.
///       Memory: this rank's part of the new tensors, on the host, and of tied tensors in another layout than their
///       partner.
result<save_report> save_mapped(const std::filesystem::path& destination, const const_local_state& held,
                                std::span<const mapping_rules> mappings, const model_sizes& sizes,
                                communicator_ref comm, const rank_save_options& options = {});

}  // namespace shardmesh
