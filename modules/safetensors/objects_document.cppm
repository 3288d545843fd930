// SPDX-License-Identifier: Apache-2.0
// Not exported: reads and checks the document of objects.json. Its digest and its writing are in objects_file.
module shardmesh.safetensors:objects_document;

import shardmesh.std;
import shardmesh.core;
import :objects_file;

namespace shardmesh::safetensors {

// See `parse_objects`. An ill-formed value is an error that names its key, because accepted values are pickled again
// when the checkpoint becomes a DCP folder.
result<stored_objects> read_objects_document(std::string_view text);

}  // namespace shardmesh::safetensors
