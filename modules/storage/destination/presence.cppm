// SPDX-License-Identifier: Apache-2.0
// Not exported: marks a file or folder as in use, by a lock (flock) on the file or folder itself. Other processes see
// the lock, and it disappears when its owner ends, whatever the cause. The lock is shared, because ranks write into one
// folder together.
module shardmesh.storage:presence;

import shardmesh.std;
import shardmesh.core;

namespace shardmesh {

class presence {
 public:
  presence() = default;
  presence(presence&& other) noexcept : fd_(std::exchange(other.fd_, -1)), is_unseen_(other.is_unseen_) {}
  presence& operator=(presence&& other) noexcept;
  ~presence();

  // Takes this process's lock on an existing file or folder. errc::io when it cannot be opened, or when it was just
  // removed as a leftover (errno ENOENT). In the latter case, create it again.
  static result<presence> on(const std::filesystem::path& path);
  // True when this process was refused a lock (ENOLCK) that others may get: they would take the file for a dead run's.
  // Not set on a file system without locks, where no process gets one.
  bool is_unseen() const { return is_unseen_; }
  // Returns a read-only descriptor of the locked file or folder; -1 when there is none.
  int descriptor() const { return fd_; }
  // Returns whether `path` still names the locked file or folder.
  bool is_at(const std::filesystem::path& path) const;

 private:
  explicit presence(int fd) : fd_(fd) {}
  int fd_ = -1;
  bool is_unseen_ = false;
};

}  // namespace shardmesh
