// SPDX-License-Identifier: Apache-2.0
// Not exported: the end of writing to a file, where `fsync` and `close` report errors that no `pwrite` showed. Call
// both on the descriptor that wrote; another descriptor of the file may not learn of the error.
module shardmesh.storage:written_file;

import shardmesh.std;
import shardmesh.core;

namespace shardmesh {

// Syncs the bytes written through `fd`. `name` is the file's, for messages. errc::io, errc::no_space.
result<void> sync_written(int fd, const std::string& name);

// Closes `fd`, even when it returns an error. Quotas and network file systems may report a failed write only here.
result<void> close_written(int fd, const std::string& name);

// Syncs a folder, which makes the names in it durable. Succeeds where the file system has no fsync of folders.
result<void> sync_folder(const std::filesystem::path& folder, const std::string& name);

// Syncs a file to which this process has written nothing.
result<void> sync_file(const std::filesystem::path& file, const std::string& name);

}  // namespace shardmesh
