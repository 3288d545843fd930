// SPDX-License-Identifier: Apache-2.0
// Names of parameters without the names that wrappers put between them. Not here: typed paths (tree).
export module shardmesh.fsdp:keys;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh {

/// PyTorch's name of a flat parameter in a local state dict.
inline constexpr std::string_view flat_parameter_key = "_flat_param";

/// The names that PyTorch's wrappers put between a module and what it wraps: FSDP's and activation checkpointing's.
std::span<const std::string_view> wrapper_names();

/// `key` without the components that are one of `wrappers`: "_fsdp_wrapped_module.blocks.0._fsdp_wrapped_module.up"
/// becomes "blocks.0.up". Only whole components go, the last one too.
/// Source: torch.distributed.fsdp._common_utils.clean_tensor_name, which cuts the text out wherever it occurs.
/// Cost: O(length).
std::string clean_key(std::string_view key, std::span<const std::string_view> wrappers = wrapper_names());

/// "a" and "b" are "a.b"; an empty one adds no dot.
std::string joined_key(std::string_view prefix, std::string_view key);

/// `key` with `to` in the place of the `from` at its front; the key itself when it does not begin so.
/// Source: torch.distributed.fsdp._state_dict_utils._replace_by_prefix, for one key.
std::string replaced_prefix(std::string_view key, std::string_view from, std::string_view to);

}  // namespace shardmesh
