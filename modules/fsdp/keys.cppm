// SPDX-License-Identifier: Apache-2.0
// Names of parameters without the components that wrappers insert. Typed paths are in room tree.
export module shardmesh.fsdp:keys;

import shardmesh.std;
import shardmesh.core;

namespace shardmesh {

// The names that PyTorch's wrappers insert between a module and the module that they wrap: those of FSDP and of
// activation checkpointing.
std::span<const std::string_view> wrapper_names();

}  // namespace shardmesh

export namespace shardmesh {

/// PyTorch's name of a flat parameter in a local state dict.
inline constexpr std::string_view flat_parameter_key = "_flat_param";

/// Removes the components of `key` that are in `wrappers`, by default those of FSDP and of activation checkpointing:
/// "_fsdp_wrapped_module.blocks.0._fsdp_wrapped_module.up" becomes "blocks.0.up". Only whole components are removed,
/// including the last one.
/// Source: torch.distributed.fsdp._common_utils.clean_tensor_name, which removes the text wherever it occurs
/// Cost: O(length).
std::string clean_key(std::string_view key, std::span<const std::string_view> wrappers = wrapper_names());

/// Joins "a" and "b" to "a.b". An empty key adds no dot.
std::string joined_key(std::string_view prefix, std::string_view key);

}  // namespace shardmesh
