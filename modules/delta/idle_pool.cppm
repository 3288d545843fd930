// SPDX-License-Identifier: Apache-2.0
// Not exported: objects that threads use one at a time, and that are kept for the next thread: contexts of zstd and
// buffers, whose construction costs more than a block.
module shardmesh.delta:idle_pool;

import shardmesh.std;

namespace shardmesh::delta {

// Thread-safe.
template <class T>
class idle_pool {
 public:
  // Returns an idle object, or a new one of these arguments.
  template <class... Arguments>
  std::unique_ptr<T> take(Arguments&&... arguments) {
    {
      const std::scoped_lock guard(lock_);
      if (!idle_.empty()) {
        std::unique_ptr<T> made = std::move(idle_.back());
        idle_.pop_back();
        return made;
      }
    }
    return std::make_unique<T>(std::forward<Arguments>(arguments)...);
  }
  void put(std::unique_ptr<T> idle) {
    const std::scoped_lock guard(lock_);
    idle_.push_back(std::move(idle));
  }

 private:
  std::mutex lock_;
  std::vector<std::unique_ptr<T>> idle_;
};

}  // namespace shardmesh::delta
