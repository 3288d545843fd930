// SPDX-License-Identifier: Apache-2.0
// select_entries: a view of some of a checkpoint's entries, under new names where a selection renames them. How keys
// are chosen is in selection.
export module shardmesh.checkpoint:select_entries;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;
import :selection;

export namespace shardmesh {

/// Makes a view of the entries that `selection` keeps, under their new names. A renamed entry is at the top of the
/// tree. The view reads through `inner`, and keeps it alive. Its `notes()` are those of `inner` and of the selection.
/// \errors errc::invalid_argument: the first error of `select_keys`; errc::unsupported for a selection that changes
///         values: a cast, or names in an optimizer's list of parameters. Each names the key and the file.
/// Cost: O(entries · rules + chunks). No file is read.
result<std::unique_ptr<checkpoint_reader>> select_entries(std::shared_ptr<checkpoint_reader> inner,
                                                          const selection_options& selection = {});

}  // namespace shardmesh
