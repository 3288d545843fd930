// SPDX-License-Identifier: Apache-2.0
// Not exported: the check of one tensor's description in a header.
module shardmesh.safetensors:entry_check;

import shardmesh.std;
import shardmesh.core;
import :header;
import :usual_header;

namespace shardmesh::safetensors {

// Returns the entry with absolute offsets, and moves the name out of `raw`.
// \errors errc::unsupported, errc::overflow, errc::bad_format; each names the key
result<entry> check_entry(raw_entry& raw, std::int64_t data_begin);

}  // namespace shardmesh::safetensors
