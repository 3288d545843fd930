// SPDX-License-Identifier: Apache-2.0
// parameter_list: rewrites an optimizer's list of parameter names (an object of a checkpoint) after a selection has
// renamed the parameters. The new names are in param_group_renames.
export module shardmesh.checkpoint:parameter_list;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;
import :param_group_renames;

export namespace shardmesh {

/// Reads the object at position `object` of the reader's catalog, and renames its entries as `lists` prescribes for the
/// list at `index`. Parameters that the selection leaves out are removed from the list. Returns nothing when no name
/// changes or the object is not a list.
/// \errors those of reading the object, with its key; errc::invalid_argument for a new name that is not UTF-8
/// Cost: O(bytes of the object).
result<std::optional<object_value>> renamed_parameter_list(checkpoint_reader& reader, std::size_t object,
                                                           const param_group_renames& lists, std::size_t index);

}  // namespace shardmesh
