// SPDX-License-Identifier: Apache-2.0
// Not exported: the blocks into which a delta cuts a tensor. A block is a box whose elements are one run of the
// row-major tensor, and the blocks follow each other in that order.
module shardmesh.delta:block_grid;

import shardmesh.std;
import shardmesh.core;

namespace shardmesh::delta {

class block_grid {
 public:
  block_grid() = default;
  // `most`: the largest number of elements in a block, at least 1.
  // \pre no size is negative, and the number of elements fits in 64 bits
  block_grid(const extents& shape, std::int64_t most);

  // Returns the number of blocks; 0 for a tensor without elements.
  std::int64_t count() const { return count_; }
  box block(std::int64_t number) const;

  // Visits the blocks that meet `part`, in ascending order. `part` lies within the tensor.
  result<void> for_each_meeting(const box& part,
                                function_ref<result<void>(std::int64_t number, const box& block)> visit) const;

 private:
  extents shape_, sizes_;  // of the tensor; of a block that the tensor's end does not cut
  extents counts_;         // of blocks, per dimension
  std::int64_t count_ = 0;
};

}  // namespace shardmesh::delta
