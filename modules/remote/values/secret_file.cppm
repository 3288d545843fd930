// SPDX-License-Identifier: Apache-2.0
// Not exported: reads files that hold keys or tokens.
module shardmesh.remote:secret_file;

import shardmesh.std;
import shardmesh.core;
import :secret;

namespace shardmesh::remote {

// Reads a whole file. The buffer of the read is overwritten.
// \errors errc::io (with `sys`), errc::bad_format for another kind of file, errc::invalid_argument for more than
//         `most_bytes`; all name the file
result<secret> read_secret_file(const std::filesystem::path& path, std::int64_t most_bytes);

}  // namespace shardmesh::remote
