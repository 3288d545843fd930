// SPDX-License-Identifier: Apache-2.0
// Not exported: the lock of a run's folder (flock on ".shardmesh_run.lock"), which tells a second writer about the
// first one. The system releases it when its process ends. Locks on the files of one save are in room storage.
module shardmesh.run:run_lock;

import shardmesh.std;
import shardmesh.core;

namespace shardmesh {

inline constexpr std::string_view run_lock_name = ".shardmesh_run.lock";

class run_lock {
 public:
  run_lock() = default;
  run_lock(run_lock&& other) noexcept : fd_(std::exchange(other.fd_, -1)), maker_(other.maker_) {}
  run_lock& operator=(run_lock&& other) noexcept;
  // Releases the lock, also if a forked child has inherited it. In such a child it keeps the lock of the parent.
  ~run_lock();

  // Takes the lock of an existing folder. A file system without locks gives none, and no error.
  // errc::destination_exists naming process and host of the other run; errc::io.
  static result<run_lock> take(const std::filesystem::path& run);
  // Returns whether there is a lock.
  bool is_held() const { return fd_ >= 0; }

 private:
  explicit run_lock(int fd);
  int fd_ = -1;
  std::uint64_t maker_ = 0;  // the token of the process that took the lock
};

}  // namespace shardmesh
