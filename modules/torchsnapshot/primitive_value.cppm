// SPDX-License-Identifier: Apache-2.0
// Not exported: values that a manifest itself holds, such as numbers and text.
module shardmesh.torchsnapshot:primitive_value;

import shardmesh.std;
import shardmesh.core;

namespace shardmesh::torchsnapshot {

// Returns the value that a manifest entry itself holds, as an archive. `type` is "int", "str", "bool", "bytes", or
// "float".
// \errors errc::bad_format for a text that is not of the type
// Source: torchsnapshot.manifest.PrimitiveEntry
result<std::vector<std::byte>> archive_of_value(const std::string& type, const std::string& text);

}  // namespace shardmesh::torchsnapshot
