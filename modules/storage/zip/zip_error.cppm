// SPDX-License-Identifier: Apache-2.0
// Not exported: the errors of reading a ZIP archive.
module shardmesh.storage:zip_error;

import shardmesh.std;
import shardmesh.core;
import :source;

namespace shardmesh::zip_reading {

// Returns the error for an archive that contradicts itself or is cut off. It names the file.
error bad(const byte_source& source, std::string message);

// Returns the error for a part of an archive. Only the last part has the directory, and no reader here opens the
// others.
error several_disks(const byte_source& source, const std::string& why);

}  // namespace shardmesh::zip_reading
