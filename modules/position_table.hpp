// SPDX-License-Identifier: Apache-2.0
// position_table: finds positions in an array that somebody else holds by the hashes of what lies there. One table for
// all rooms; private to bodies. Open addressing, at most half full, 8 bytes a slot: 16 bits of the hash and the
// position, so that a look-up rarely touches the array for nothing. Not here: equality and hashes, which callers know.
// Why our own: positions move when an array grows in its middle, and are rewritten in place here (`move`), where a
// container of a library erases and inserts. docs/design.md section 11 has the figures: tsl::robin_map took 1.0 to 2.8
// times as long; abseil's tables are as fast, but 31 shared libraries that every program would load.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace shardmesh::detail {

class position_table {
 public:
  static constexpr std::size_t none = static_cast<std::size_t>(-1);

  /// Holds `count` positions without growing.
  explicit position_table(std::size_t count = 0) : slots_(std::bit_ceil(2 * count + 2), 0) {}

  /// The position with this hash for which `is_sought(position)` holds, else `none`.
  /// Precondition of all members: positions are below 2^48 - 1. Cost: O(1) expected.
  template <class IsSought>
  std::size_t find(std::uint64_t hash, IsSought is_sought) const {
    for (std::size_t slot = hash & mask(); slots_[slot] != 0; slot = (slot + 1) & mask())
      if (((slots_[slot] ^ hash) & tag) == 0)
        if (const std::size_t at = position(slot); is_sought(at)) return at;
    return none;
  }

  /// Adds a position that is not there. `hash_of(position)` is asked of all that are there when the table grows.
  template <class HashOf>
  void insert(std::uint64_t hash, std::size_t at, HashOf hash_of) {
    if (2 * used_ + 2 > slots_.size()) grow(hash_of);
    put(hash, at);
    ++used_;
  }

  /// A position that is there became another one, with the same hash.
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
