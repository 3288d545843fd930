// SPDX-License-Identifier: Apache-2.0
// parameter_list: an optimizer's list of parameters' names, an object of a checkpoint, with the names that a selection
// gives the parameters. Not here: which names those are (followed_lists).
export module shardmesh.checkpoint:parameter_list;

import shardmesh.std;
import shardmesh.core;
import shardmesh.catalog;
import :followed_lists;

export namespace shardmesh {

/// The object with this number (in the reader's catalog) as `lists` has it, under `index` there; parameters that are
/// left out leave the list. Nothing when no name changes, or the object is no list of strings.
/// \errors those of reading the object, with its key; errc::invalid_argument for a new name that is not UTF-8
/// Cost: O(bytes of the object).
result<std::optional<object_value>> renamed_parameter_list(checkpoint_reader& reader, std::size_t object,
                                                           const followed_lists& lists, std::size_t index);

}  // namespace shardmesh
