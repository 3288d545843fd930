// SPDX-License-Identifier: Apache-2.0
// staging_pool: memory that `start_save` copies into, kept from one save to the next, and a bound of the saves that are
// under way. Not here: who takes it (staging_lease), saving (save).
export module shardmesh.collective_checkpoint:staging_pool;

import shardmesh.std;
import shardmesh.core;

namespace shardmesh {
class staging_lease;
}

export namespace shardmesh {

/// What becomes of a save that a pool has no room for.
enum class full_staging : std::uint8_t {
  wait,    // until saves that are under way have ended; the save's deadline and cancellation reach it
  refuse,  // errc::no_memory on every rank
};

/// What a pool may have.
struct staging_pool_options {
  std::int64_t max_bytes = 0;  // of memory at a time, used or kept; 0: as much as `max_saves` saves need
  std::int32_t max_saves = 2;  // under way at a time
  full_staging when_full = full_staging::wait;
};

/// What a pool has.
struct staging_use {
  std::int32_t saves = 0;       // under way
  std::int32_t waiting = 0;     // for room
  std::int64_t used_bytes = 0;  // that they use
  std::int64_t kept_bytes = 0;  // that nobody uses
  std::int64_t taken = 0;       // how often memory was taken from the system
  friend bool operator==(const staging_use&, const staging_use&) = default;
};

/// Memory of the host for the copies that saves in the background write. One rank's: ranks that are threads of one
/// process have one each. Copies of the value are the same pool; it lives until the last of them and the last save that
/// uses it are gone. All calls are safe from several threads.
class staging_pool {
 public:
  /// None: every save takes memory of its own and gives it back.
  staging_pool() = default;
  /// Takes no memory yet. \errors errc::invalid_argument (negative bytes, no saves)
  static result<staging_pool> make(const staging_pool_options& options = {});

  /// True when it was made by default.
  bool is_none() const { return !state_; }
  // The rest has a precondition: !is_none().

  const staging_pool_options& options() const;
  staging_use use() const;
  /// Gives what nobody uses back to the system. \returns how many bytes
  std::int64_t release();

  struct state;

 private:
  friend class staging_lease;
  std::shared_ptr<state> state_;
};

}  // namespace shardmesh
