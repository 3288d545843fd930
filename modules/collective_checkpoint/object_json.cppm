// SPDX-License-Identifier: Apache-2.0
// Not exported: describes objects that are given as archives, for formats that hold their values as JSON.
module shardmesh.collective_checkpoint:object_json;

import shardmesh.std;
import shardmesh.core;

namespace shardmesh {

// Returns the description of an object: its kind, type, and value. `key` is for messages.
// \errors errc::unsupported for an object that holds tensors; those of reading the archive
result<std::string> json_of_archive(std::span<const std::byte> archive, const std::string& key);

}  // namespace shardmesh
