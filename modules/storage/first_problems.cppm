// SPDX-License-Identifier: Apache-2.0
// Collects the problems that many threads find, and keeps only the first ones in the catalog's order.
export module shardmesh.storage:first_problems;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh {

/// Keeps the `most` problems with the lowest places and counts the rest, so that a file with a million defects costs no
/// more memory than one with a thousand. Thread-safe.
class first_problems {
 public:
  explicit first_problems(std::size_t most) : most_(most) {}

  // `place` orders the problems; among equal places, the one added first comes first.
  void add(std::int64_t place, error problem) {
    const std::scoped_lock guard(lock_);
    kept_.emplace(std::pair(place, number_++), std::move(problem));
    if (kept_.size() <= most_) return;
    kept_.erase(std::prev(kept_.end()));
    ++more_;
  }

  // Returns the kept problems and ends the collection.
  std::vector<error> take() {
    std::vector<error> problems;
    for (auto& [place, problem] : kept_) problems.push_back(std::move(problem));
    kept_.clear();
    return problems;
  }
  std::int64_t more() const { return more_; }

 private:
  std::size_t most_;
  std::mutex lock_;
  std::map<std::pair<std::int64_t, std::int64_t>, error> kept_;
  std::int64_t number_ = 0, more_ = 0;
};

}  // namespace shardmesh
