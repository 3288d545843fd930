// SPDX-License-Identifier: Apache-2.0
// The open files of a reader or a writer, with a limit on how many are open at a time. Internal to `storage`.
module shardmesh.storage:descriptors;

import shardmesh.std;
import shardmesh.core;

namespace shardmesh {

// A pool of at most `most` descriptors (and at most a fifth of the process's limit, or half of it for a writer).
// Callers number their files. The least recently used idle descriptor is closed to open another. When all are in use, a
// thread that needs one waits and holds none meanwhile. Thread-safe.
class descriptors {
 public:
  // Closes a descriptor of `file`. `acquire` returns its error when it has to close one descriptor to open another.
  using closer = std::function<result<void>(std::uint64_t file, int fd)>;

  // Without `close`, errors from closing are ignored, because the files are only read.
  explicit descriptors(std::size_t most, closer close = {});
  // Returns the largest number of open descriptors.
  std::size_t most() const { return most_; }
  // Closes all descriptors without calling `close`: the written bytes are no longer wanted.
  ~descriptors();
  descriptors(const descriptors&) = delete;
  descriptors& operator=(const descriptors&) = delete;

 private:
  struct entry {
    std::uint64_t file;
    int fd;
    int users;
  };

 public:
  // Keeps a descriptor open and in use for the lifetime of this object.
  class use {
   public:
    use(use&& other) noexcept : all_(std::exchange(other.all_, nullptr)), entry_(other.entry_) {}
    use& operator=(use&&) = delete;
    ~use() {
      if (all_ != nullptr) all_->release(entry_);
    }
    int fd() const { return entry_->fd; }

   private:
    friend descriptors;
    use(descriptors* all, std::list<entry>::iterator held) : all_(all), entry_(held) {}
    descriptors* all_;
    std::list<entry>::iterator entry_;
  };

  // Opens `file` or finds it open. `open` and `close` are called without holding the lock, because they can be slow on
  // a network file system. Their errors are returned. On EMFILE, an idle descriptor is closed first and `open` is
  // called again.
  result<use> acquire(std::uint64_t file, function_ref<result<int>()> open);
  // Precondition of the next three: the descriptors to be closed are not in use. `forget` and `abandon_all` do not call
  // `close`.
  void forget(std::uint64_t file);
  void abandon_all();
  // Closes all descriptors, also after an error, and returns the first error.
  result<void> close_all();

 private:
  void release(std::list<entry>::iterator held);
  std::optional<entry> take_idle();
  entry take(std::list<entry>::iterator taken);
  result<void> end(const entry& taken) const;
  result<void> end_idle(std::unique_lock<std::mutex>& guard, const entry& idle);

  const std::size_t most_;
  const closer close_;
  std::size_t opening_ = 0;
  std::mutex lock_;
  std::condition_variable released_;
  std::list<entry> recent_;  // most recently used first
  std::unordered_map<std::uint64_t, std::list<entry>::iterator> by_file_;
};

}  // namespace shardmesh
