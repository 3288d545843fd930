// SPDX-License-Identifier: Apache-2.0
// descriptors: the open files of a reader or a writer, of which only so many may be open at a time. Internal to the
// room.
module shardmesh.storage:descriptors;

import shardmesh.std;
import shardmesh.core;

namespace shardmesh {

// At most `most` descriptors (and a fifth of what the process may open, or half of it), by numbers that callers give
// their files: the least recently used idle one is closed for another. A thread that
// needs one while all are in use waits, and holds none meanwhile. Thread-safe.
class descriptors {
 public:
  // Closes a descriptor of `file`. `acquire` returns its errors when it closes one descriptor to open another.
  using closer = std::function<result<void>(std::uint64_t file, int fd)>;

  // Without `close`, errors of closing do not count: of files that are only read.
  explicit descriptors(std::size_t most, closer close = {});
  // How many are open at most.
  std::size_t most() const { return most_; }
  // Closes without `close`: what was written is not wanted any more.
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
  // A descriptor in use until the end of this value.
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

  // `open` and `close` are called without a lock: on a network they can take long. Their errors are passed on; on
  // EMFILE an idle descriptor is closed first and `open` is called again.
  result<use> acquire(std::uint64_t file, function_ref<result<int>()> open);
  // Precondition of all: what is closed is not in use. `forget` and `abandon_all` do not call `close`.
  void forget(std::uint64_t file);
  void abandon_all();
  // Closes all of them, also after an error, and returns the first error.
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
