// SPDX-License-Identifier: Apache-2.0
// lru_cache: the most recently used values, by key. Not thread-safe. Shared by all rooms; only .cpp files include it.
// Why not a library: Debian packages no LRU container for C++, and one made of Boost.MultiIndex has no fewer lines.
#pragma once
#include <cstddef>
#include <list>
#include <map>
#include <utility>

namespace shardmesh::detail {

template <class Key, class Value>
class lru_cache {
 public:
  /// Keeps at most `most` values, at least one.
  explicit lru_cache(std::size_t most) : most_(most == 0 ? 1 : most) {}

  std::size_t size() const { return recent_.size(); }

  /// Returns the value of `key`, or null. The pointer is valid until the next insertion. Cost: O(log n).
  Value* find(const Key& key) {
    const auto found = by_key_.find(key);
    if (found == by_key_.end()) return nullptr;
    recent_.splice(recent_.begin(), recent_, found->second);
    return &found->second->second;
  }

  /// Adds a value. A key that is already present keeps its value. A full cache drops the least recently used value.
  void insert(const Key& key, Value value) {
    if (by_key_.contains(key)) return;
    recent_.emplace_front(key, std::move(value));
    by_key_.emplace(key, recent_.begin());
    if (recent_.size() <= most_) return;
    by_key_.erase(recent_.back().first);
    recent_.pop_back();
  }

  void clear() {
    by_key_.clear();
    recent_.clear();
  }

 private:
  using entries = std::list<std::pair<Key, Value>>;
  std::size_t most_;
  entries recent_;  // the latest first
  std::map<Key, typename entries::iterator> by_key_;
};

}  // namespace shardmesh::detail
