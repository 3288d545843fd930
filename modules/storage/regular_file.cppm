// SPDX-License-Identifier: Apache-2.0
// Not exported: opens files that must be regular.
module shardmesh.storage:regular_file;

import shardmesh.std;
import shardmesh.core;

namespace shardmesh {

// Opens a regular file for reading and returns its descriptor. errc::bad_format when it is not a regular file,
// errc::io; both name it. Opening a FIFO would wait for a writer, and opening a device can have effects. The kind is
// therefore checked before opening, and again after.
result<int> open_regular(const std::string& path);

}  // namespace shardmesh
