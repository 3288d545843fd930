// SPDX-License-Identifier: Apache-2.0
// Not exported: which entries of its memo a pickle fetches. Picklers memoize every object and fetch few: of 3.5 million
// entries of a description of 200,000 chunks, 25,000. Not here: the entries (memo).
module shardmesh.pickle:memo_use;

import shardmesh.std;

namespace shardmesh::pickle {

// A set of memo numbers. `rank` is the position of an entry among them.
class memo_use {
 public:
  inline bool contains(std::uint64_t number) const {
    return number / 64 < bits_.size() && (bits_[number / 64] >> (number % 64) & 1) != 0;
  }
  /// How many smaller numbers the set has. Precondition: it contains this one.
  std::size_t rank(std::uint64_t number) const;
  std::size_t size() const { return size_; }
  std::size_t memory_bytes() const {
    return bits_.capacity() * sizeof(bits_[0]) + before_.capacity() * sizeof(before_[0]);
  }

  void insert(std::uint64_t number);
  /// Ranks are known from here on. Call once, behind the last `insert`.
  void count();

 private:
  std::vector<std::uint64_t> bits_;
  std::vector<std::size_t> before_;  // entries in the words before this one
  std::size_t size_ = 0;
};

// The memo numbers that the pickle at the start of `bytes` fetches. Nothing for pickles that number their memo in
// another order than picklers do, or in text, or use DUP; and for what ends before STOP, where the machine says what is
// wrong.
// Cost: O(bytes), one pass that makes no values.
std::optional<memo_use> memo_use_of(std::span<const std::byte> bytes);

}  // namespace shardmesh::pickle
