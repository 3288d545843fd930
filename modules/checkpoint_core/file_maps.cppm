// SPDX-License-Identifier: Apache-2.0
// The mapped files of one opened checkpoint. Reading through the mappings is in `stored_tensor`.
export module shardmesh.checkpoint_core:file_maps;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;

export namespace shardmesh {

/// Memory-mapped files by path. Each file is mapped on first use and stays mapped while this object lives. Thread-safe.
class file_maps {
 public:
  file_maps();
  ~file_maps();
  /// Returns the mapping of a file.
  /// \errors those of `mapped_file::open`
  result<std::shared_ptr<const mapped_file>> open(const std::string& path);

 private:
  struct state;
  std::unique_ptr<state> state_;
};

}  // namespace shardmesh
