// SPDX-License-Identifier: Apache-2.0
// position_table: a hash table of positions in an array that the caller holds. Callers provide hashes and equality.
// Shared by all rooms; only .cpp files include it.
// Open addressing, at most half full, 8 bytes per slot: the position and 16 bits of the hash, so that a look-up rarely
// reads the array in vain. Why not a library: positions change when the array grows in its middle. `move` rewrites them
// in place, where a library's container erases and inserts. docs/decisions/0048-own-tables.md has the figures.
// tsl::robin_map took 1.0 to 2.8 times as long. abseil's tables are as fast, but make every program load 31 shared
// libraries.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace shardmesh::detail {

class position_table {
 public:
  static constexpr std::size_t none = static_cast<std::size_t>(-1);

  /// Makes room for `count` positions without growing.
  explicit position_table(std::size_t count = 0) : slots_(std::bit_ceil(2 * count + 2), 0) {}

  /// Returns the position with this hash for which `is_sought(position)` holds, else `none`.
  /// Precondition of all members: positions are below 2^48 - 1. Cost: O(1) expected.
  template <class IsSought>
  std::size_t find(std::uint64_t hash, IsSought is_sought) const {
    for (std::size_t slot = hash & mask(); slots_[slot] != 0; slot = (slot + 1) & mask())
      if (((slots_[slot] ^ hash) & tag) == 0)
        if (const std::size_t at = position(slot); is_sought(at)) return at;
    return none;
  }

  /// Adds a position that is not in the table. A table that grows calls `hash_of(position)` for every position in it.
  template <class HashOf>
  void insert(std::uint64_t hash, std::size_t at, HashOf hash_of) {
    if (2 * used_ + 2 > slots_.size()) grow(hash_of);
    put(hash, at);
    ++used_;
  }

  /// Replaces the stored position `from` by `to`, which has the same hash.
  void move(std::uint64_t hash, std::size_t from, std::size_t to) {
    std::size_t slot = hash & mask();
    while (position(slot) != from) slot = (slot + 1) & mask();
    slots_[slot] = entry(hash, to);
  }

 private:
  static constexpr std::uint64_t tag = 0xFFFF'0000'0000'0000;
  static std::uint64_t entry(std::uint64_t hash, std::size_t at) { return (hash & tag) | (at + 1); }
  std::size_t mask() const { return slots_.size() - 1; }
  std::size_t position(std::size_t slot) const { return (slots_[slot] & ~tag) - 1; }

  void put(std::uint64_t hash, std::size_t at) {
    std::size_t slot = hash & mask();
    while (slots_[slot] != 0) slot = (slot + 1) & mask();
    slots_[slot] = entry(hash, at);
  }
  template <class HashOf>
  void grow(HashOf hash_of) {
    std::vector<std::uint64_t> before(4 * slots_.size(), 0);
    before.swap(slots_);
    for (const std::uint64_t one : before)
      if (one != 0) put(hash_of((one & ~tag) - 1), (one & ~tag) - 1);
  }

  std::vector<std::uint64_t> slots_;  // 0: free
  std::size_t used_ = 0;
};

}  // namespace shardmesh::detail
