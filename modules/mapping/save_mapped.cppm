// SPDX-License-Identifier: Apache-2.0
// Saves a state in memory under another naming convention. Loads need no such call: the mapped checkpoint is one like
// any other.
export module shardmesh.mapping:save_mapped;

import shardmesh.std;
import shardmesh.core;
import shardmesh.tree;
import shardmesh.checkpoint_core;
import shardmesh.checkpoint;
import :model_sizes;
import :rules;

export namespace shardmesh {

/// Writes a state that this process holds, under the convention to which the last mapping leads: `map_checkpoint` of
/// the state, then `convert`. The selection applies to the new names.
/// \param destination  written completely, or not at all
/// \param held         the state: `local_view(state)` of a state dict. Its tensors lie in host memory, which must not
///                     change during the call.
/// \param mappings     applied in order, as in `map_checkpoint`
/// \errors for each tensor, with its key: errc::gap, errc::overlap, errc::shape_mismatch, errc::dtype_mismatch,
///         errc::unsupported (memory that the host cannot read), errc::duplicate_key; those of `map_checkpoint` and of
///         `convert`
/// Cost: as `convert`; nothing is copied before.
result<save_report> save_mapped(const std::filesystem::path& destination, const const_local_state& held,
                                std::span<const mapping_rules> mappings, const model_sizes& sizes,
                                const convert_options& options = {});
/// Writes tensors and objects of any origin in the same way. The rank of a part has no effect. Objects need `archive`.
result<save_report> save_mapped(const std::filesystem::path& destination, std::span<const save_tensor> tensors,
                                std::span<const output_object> objects, std::span<const mapping_rules> mappings,
                                const model_sizes& sizes, const convert_options& options);

}  // namespace shardmesh
