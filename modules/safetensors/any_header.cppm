// SPDX-License-Identifier: Apache-2.0
// Not exported: a header of any form that JSON allows. Headers in the form of the usual writers are in `usual_header`.
module shardmesh.safetensors:any_header;

import shardmesh.std;
import shardmesh.core;
import :header;

namespace shardmesh::safetensors {

// Reads the JSON of a header and reports its defects. Names and places are not compared.
result<header> read_any(std::string_view text);

}  // namespace shardmesh::safetensors
