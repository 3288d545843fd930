// SPDX-License-Identifier: Apache-2.0
// file_maps: the files of one opened checkpoint that are mapped. Not here: what is read through them (stored_tensor).
export module shardmesh.catalog:file_maps;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;

export namespace shardmesh {

/// Files by path, each mapped when it is first asked for and for as long as this lives. Thread-safe.
class file_maps {
 public:
  file_maps();
  ~file_maps();
  /// \errors those of `mapped_file::open`
  result<std::shared_ptr<const mapped_file>> open(const std::string& path);

 private:
  struct state;
  std::unique_ptr<state> state_;
};

}  // namespace shardmesh
