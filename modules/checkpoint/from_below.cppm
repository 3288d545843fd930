// SPDX-License-Identifier: Apache-2.0
// from_below: what users of checkpoints call that lives in rooms below: the description of a checkpoint, options and
// reports. Everything else there is for writers of formats, who import shardmesh.catalog or shardmesh.storage.
export module shardmesh.checkpoint:from_below;

import shardmesh.std;
import shardmesh.storage;
import shardmesh.catalog;

export namespace shardmesh {

// What a checkpoint holds, and its reader.
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
using shardmesh::stored_properties;
using shardmesh::stored_range;
using shardmesh::tensor_entry;

// Writing one.
using shardmesh::output_options;
using shardmesh::save_options;
using shardmesh::save_report;

// What killed runs left.
using shardmesh::find_leftovers;
using shardmesh::leftover;
using shardmesh::leftover_options;
using shardmesh::leftover_owner;
using shardmesh::remove_leftover;

}  // namespace shardmesh
