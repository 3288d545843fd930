// SPDX-License-Identifier: Apache-2.0
// Turns JSON that `object_json` printed back into a torch.save archive, for reading objects.json.
export module shardmesh.torch_file:archive_from_json;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh::torch_file {

/// Rebuilds plain data from its JSON (tags as in docs/formats.md) and pickles it into an archive.
/// \errors errc::bad_format for text that is not JSON; errc::unsupported for values that the JSON does not hold
///   completely: tensors inside objects, opaque types
result<std::vector<std::byte>> archive_from_json(std::string_view json);

}  // namespace shardmesh::torch_file

namespace shardmesh::torch_file {

// Returns only the pickle, in protocol 2.
result<std::vector<std::byte>> pickle_from_json(std::string_view json);

}  // namespace shardmesh::torch_file
