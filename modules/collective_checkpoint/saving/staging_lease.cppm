// SPDX-License-Identifier: Apache-2.0
// Not exported: staging_lease, the memory that one save takes from a staging_pool until it ends. Copying is in
// staged_copies.
module shardmesh.collective_checkpoint:staging_lease;

import shardmesh.std;
import shardmesh.core;
import :staging_pool;

namespace shardmesh {

// Move-only; the destructor returns the memory to the pool.
class staging_lease {
 public:
  staging_lease() = default;
  staging_lease(staging_lease&&) noexcept = default;
  staging_lease& operator=(staging_lease&& other) noexcept {
    if (this != &other) {
      give_back();
      pool_ = std::move(other.pool_);
      memory_ = std::move(other.memory_);
    }
    return *this;
  }
  ~staging_lease() { give_back(); }

  // Takes a place among the running saves, and memory of `size_bytes`.
  // \param rank  the rank that saves. Saves of two ranks cannot run in one pool, since each would wait for the other.
  // \errors errc::no_memory naming the sizes (more than the pool's bound, a full pool that refuses, or no memory left
  //         in the system), errc::deadline_exceeded, errc::cancelled, errc::invalid_argument (another rank's pool)
  static result<staging_lease> take(const staging_pool& pool, std::int64_t size_bytes, std::int32_t rank,
                                    const call_options& call);

  // Aligned to 64 bytes.
  std::span<std::byte> bytes() { return memory_.bytes(); }
  void give_back() noexcept;

 private:
  std::shared_ptr<staging_pool::state> pool_;
  host_tensor memory_;
};

}  // namespace shardmesh
