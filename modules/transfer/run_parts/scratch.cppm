// SPDX-License-Identifier: Apache-2.0
// Host memory of runs. A backend's memory is in `batch_worker`. Exports nothing.
module shardmesh.transfer:scratch;

import shardmesh.std;
import shardmesh.core;

namespace shardmesh {

// Memory that grows to the largest requested size and keeps it. In a batch, it holds the staging, then the messages of
// one of the batch's rounds. In a collective, it holds a slab.
class scratch {
 public:
  // \errors errc::no_memory
  result<std::byte*> reserve(std::int64_t size_bytes);
  inline std::int64_t capacity() const { return capacity_; }

 private:
  std::unique_ptr<std::byte[]> memory_;
  std::int64_t capacity_ = 0;
};

}  // namespace shardmesh
