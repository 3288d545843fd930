// SPDX-License-Identifier: Apache-2.0
// reexports: re-exports the names of lower rooms that users of checkpoints need: the description of a checkpoint,
// options, and reports. Writers of formats import shardmesh.checkpoint_core or shardmesh.storage for the rest.
export module shardmesh.checkpoint:reexports;

import shardmesh.std;
import shardmesh.storage;
import shardmesh.checkpoint_core;

export namespace shardmesh {

// The description of a checkpoint, and its reader.
using shardmesh::catalog;
using shardmesh::checkpoint_format;
using shardmesh::checkpoint_reader;
using shardmesh::file_pool;
using shardmesh::file_text;
using shardmesh::name;
using shardmesh::object_entry;
using shardmesh::object_value;
using shardmesh::open_options;
using shardmesh::rank_of_file;
using shardmesh::read_limits;
using shardmesh::read_options;
using shardmesh::stored_properties;
using shardmesh::stored_range;
using shardmesh::tensor_entry;
using shardmesh::to_string;

// Writing a checkpoint.
using shardmesh::commit_hooks;
using shardmesh::output_options;
using shardmesh::save_options;
using shardmesh::save_report;

// Leftovers of killed runs.
using shardmesh::find_leftovers;
using shardmesh::leftover;
using shardmesh::leftover_options;
using shardmesh::leftover_owner;
using shardmesh::remove_leftover;

}  // namespace shardmesh
