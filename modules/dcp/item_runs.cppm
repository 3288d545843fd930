// SPDX-License-Identifier: Apache-2.0
// Not exported: avoids small reads for biases, norms, and an optimizer's steps. An item is opened, read, and compared
// with its checksums, each time with a read and a check of the file's version. The bytes of a small item are therefore
// kept. When one item follows another, the next ones are read with it.
module shardmesh.dcp:item_runs;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;
import shardmesh.checkpoint_core;

namespace shardmesh::dcp {

class item_runs {
 public:
  // `files` must outlive the result.
  explicit item_runs(folder_files& files) : files_(files) {}

  // Returns a small item with its bytes in memory, and any other item as it is given. Thread-safe.
  std::shared_ptr<const byte_source> with_bytes(const stored_range& place, std::shared_ptr<const byte_source> item);

 private:
  struct run_of_items {
    detail::call_lock lock;
    std::int32_t file = -1;
    std::shared_ptr<const std::vector<std::byte>> bytes;  // of the file, from `begin` on
    std::int64_t begin = 0, last_end = 0;                 // `last_end`: of the item requested last
  };

  folder_files& files_;
  std::array<run_of_items, 32> runs_;  // by the file's number
};

}  // namespace shardmesh::dcp
