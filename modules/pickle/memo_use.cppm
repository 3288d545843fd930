// SPDX-License-Identifier: Apache-2.0
// Not exported: finds which memo entries a pickle fetches. Picklers memoize every object and fetch few: the metadata of
// 200,000 chunks has 3.5 million entries and fetches 25,000. The entries are in memo.
module shardmesh.pickle:memo_use;

import shardmesh.std;

namespace shardmesh::pickle {

// A set of memo numbers. `rank` is the position of a number among them.
class memo_use {
 public:
  inline bool contains(std::uint64_t number) const {
    return number / 64 < bits_.size() && (bits_[number / 64] >> (number % 64) & 1) != 0;
  }
  /// Returns how many smaller numbers the set has. Precondition: it contains this one.
  std::size_t rank(std::uint64_t number) const;
  std::size_t size() const { return size_; }
  std::size_t memory_bytes() const {
    return bits_.capacity() * sizeof(bits_[0]) + before_.capacity() * sizeof(before_[0]);
  }

  void insert(std::uint64_t number);
  /// Prepares `rank` and `size`. Call it once, after the last `insert`.
  void count();

 private:
  std::vector<std::uint64_t> bits_;
  std::vector<std::size_t> before_;  // number of entries in the preceding words
  std::size_t size_ = 0;
};

// Finds the memo numbers that the pickle at the start of `bytes` fetches. Returns nothing for pickles that number their
// memo out of order or in text, or that use DUP. It also returns nothing when the bytes end before STOP; the machine
// then reports the defect.
// Cost: O(bytes), one pass that makes no values.
std::optional<memo_use> memo_use_of(std::span<const std::byte> bytes);

}  // namespace shardmesh::pickle
