// SPDX-License-Identifier: Apache-2.0
// Not exported: the sign that somebody is at work on a file or folder, seen by other processes and gone with its owner
// however that ends: a lock (flock) on the thing itself. Shared, since ranks write into one folder together.
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

  // Of this process, on a file or folder that exists. errc::io when it cannot be opened, or when it was just taken away
  // as a leftover (errno ENOENT): make it again then.
  static result<presence> on(const std::filesystem::path& path);
  // Others may get a lock that this process was refused (ENOLCK): they would take this thing for a dead run's. Not set
  // where the file system has no locks, since nobody is given one there.
  bool is_unseen() const { return is_unseen_; }
  // A descriptor of the thing, -1 for nobody's; read only.
  int descriptor() const { return fd_; }
  // `path` still is this thing.
  bool is_at(const std::filesystem::path& path) const;

 private:
  explicit presence(int fd) : fd_(fd) {}
  int fd_ = -1;
  bool is_unseen_ = false;
};

}  // namespace shardmesh
