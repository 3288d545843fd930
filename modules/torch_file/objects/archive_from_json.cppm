// SPDX-License-Identifier: Apache-2.0
// archive_from_json: an object that `object_json` printed, as a torch.save archive again: the way back from
// objects.json.
export module shardmesh.torch_file:archive_from_json;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh::torch_file {

/// Rebuilds plain data from its JSON in the tags of docs/formats.md and pickles it.
/// errc::unsupported for what JSON does not hold whole: tensors inside objects, opaque types.
result<std::vector<std::byte>> archive_from_json(std::string_view json);

}  // namespace shardmesh::torch_file

namespace shardmesh::torch_file {

// The pickle alone, of protocol 2.
result<std::vector<std::byte>> pickle_from_json(std::string_view json);

}  // namespace shardmesh::torch_file
