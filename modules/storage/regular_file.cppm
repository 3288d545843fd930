// SPDX-License-Identifier: Apache-2.0
// Not exported: opening what must be a regular file.
module shardmesh.storage:regular_file;

import shardmesh.std;
import shardmesh.core;

namespace shardmesh {

// A descriptor for reading. errc::bad_format when it is no regular file, errc::io; both name it. Opening a FIFO would
// wait for a writer, and opening a device can do things: it is looked at first, and again once it is open.
result<int> open_regular(const std::string& path);

}  // namespace shardmesh
