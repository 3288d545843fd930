// SPDX-License-Identifier: Apache-2.0
// store_cache: a folder of this machine that keeps what was read from stores, for later loads and other processes.
export module shardmesh.storage:store_cache;

import shardmesh.std;
import shardmesh.core;
import :source;

export namespace shardmesh {

/// The folder that keeps objects of stores on this machine, and its size.
struct store_cache_options {
  /// Is made if it does not exist. Empty: nothing is kept.
  std::filesystem::path folder{};
  /// The least recently used blocks are removed beyond this size. At least 64 MiB.
  std::int64_t most_bytes = std::int64_t{50} * 1000 * 1000 * 1000;
};

/// Makes this process keep blocks of the objects that it opens from now on, and read them from the folder later. An
/// object counts as the same while its URL, size, and version (`byte_source::version`) are the same; opening it still
/// asks the server. Without this call, the variables SHARDMESH_CACHE (the folder) and SHARDMESH_CACHE_BYTES decide when
/// the first object is opened. Several processes may share the folder. Thread-safe.
/// \errors errc::invalid_argument for a limit below 64 MiB; errc::unsafe_path when every user may write into the
///         folder; errc::io when it cannot be made
result<void> use_store_cache(const store_cache_options& options);

}  // namespace shardmesh

namespace shardmesh {

// Returns a source that reads through this process's cache, or `opened` when there is none, or when the version of the
// object is not known.
result<std::unique_ptr<byte_source>> through_cache(std::unique_ptr<byte_source> opened, const std::string& url);

}  // namespace shardmesh
