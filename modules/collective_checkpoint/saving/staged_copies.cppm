// SPDX-License-Identifier: Apache-2.0
// Not exported: staged_copies, the memory with copies of the tensors that a rank writes in the background. The pool
// that keeps memory from one save to the next is in staging_pool.
module shardmesh.collective_checkpoint:staged_copies;

import shardmesh.std;
import shardmesh.core;
import :staging_lease;
import :staging_pool;

namespace shardmesh {

class staged_copies {
 public:
  // Copies the elements of each view, and replaces the view by that of its copy. The memory is the pool's, or newly
  // allocated for a pool that is none.
  // \errors errc::no_memory; those of `staging_lease::take` and `copy_between`
  result<void> take(std::span<const_tensor_view> views, const staging_pool& pool, std::int32_t rank,
                    const call_options& call);
  // Returns the memory to the pool.
  void give_back() noexcept { pooled_.give_back(); }

 private:
  // Returns memory that matches every view.
  result<std::vector<tensor_view>> memory_for(std::span<const const_tensor_view> views, const staging_pool& pool,
                                              std::int32_t rank, const call_options& call);

  std::vector<host_tensor> own_;  // without a pool
  staging_lease pooled_;          // with a pool
};

}  // namespace shardmesh
