// SPDX-License-Identifier: Apache-2.0
// staging_pool: memory that `start_save` copies into, kept from one save to the next, and a bound on the saves that run
// at a time. Taking memory is in staging_lease; saving is in save.
export module shardmesh.collective_checkpoint:staging_pool;

import shardmesh.std;
import shardmesh.core;

namespace shardmesh {
class staging_lease;
}

export namespace shardmesh {

/// The handling of a save that a pool has no room for.
enum class full_staging : std::uint8_t {
  wait,    // until running saves have ended; the save's deadline and cancellation apply
  refuse,  // errc::no_memory on every rank
};

/// The bounds of a pool.
struct staging_pool_options {
  std::int64_t max_bytes = 0;  // of memory at a time, used or kept; 0: as much as `max_saves` saves need
  std::int32_t max_saves = 2;  // that run at a time
  full_staging when_full = full_staging::wait;
};

/// The current use of a pool.
struct staging_use {
  std::int32_t saves = 0;       // running
  std::int32_t waiting = 0;     // saves that wait for room
  std::int64_t used_bytes = 0;  // by running saves
  std::int64_t kept_bytes = 0;  // unused
  std::int64_t taken = 0;       // allocations from the system so far
  friend bool operator==(const staging_use&, const staging_use&) = default;
};

/// Host memory for the copies that background saves write. It belongs to one rank: ranks that are threads of one
/// process have one pool each. Copies of the value refer to the same pool, which lives until the last of them and the
/// last save that uses it are gone. All calls are thread-safe.
class staging_pool {
 public:
  /// No pool: every save allocates memory and frees it.
  staging_pool() = default;
  /// Makes a pool without allocating memory. \errors errc::invalid_argument (negative bytes, no saves)
  static result<staging_pool> make(const staging_pool_options& options = {});

  /// True for a default-constructed value.
  bool is_none() const { return !state_; }
  // The rest has a precondition: !is_none().

  const staging_pool_options& options() const;
  staging_use use() const;
  /// Frees the unused memory. \returns the number of bytes
  std::int64_t release();

  struct state;

 private:
  friend class staging_lease;
  std::shared_ptr<state> state_;
};

}  // namespace shardmesh
