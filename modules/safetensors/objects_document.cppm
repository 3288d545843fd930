// SPDX-License-Identifier: Apache-2.0
// Not exported: the document of objects.json, read and checked. Not here: its digest and its writing (objects_file).
module shardmesh.safetensors:objects_document;

import shardmesh.std;
import shardmesh.core;
import :objects_file;

namespace shardmesh::safetensors {

// See `parse_objects`. A value that nobody would print is an error naming its key: what is accepted here is pickled
// again when the checkpoint becomes a DCP folder.
result<stored_objects> read_objects_document(std::string_view text);

}  // namespace shardmesh::safetensors
