// SPDX-License-Identifier: Apache-2.0
// Not exported: the memo of a pickle: values by number.
module shardmesh.pickle:memo;

import shardmesh.std;
import :value;

namespace shardmesh::pickle {

class memo {
 public:
  /// Number of entries: what MEMOIZE gives the next one.
  inline std::uint64_t size() const { return count_; }

  /// `offset`: of the opcode in the input. A writer numbers its memo in order, so indices stay below it; others are
  /// kept in a map, so that an absurd index costs no more than a small one.
  inline void put(std::uint64_t index, std::uint64_t bits, std::size_t offset) {
    if (index <= offset) {
      if (index >= dense_.size()) dense_.grow(index + 1 - dense_.size());
      count_ += dense_[index] == 0;
      dense_[index] = bits;
    } else {
      count_ += sparse_.insert_or_assign(index, bits).second;
    }
  }
  /// 0 where there is no entry.
  inline std::uint64_t get(std::uint64_t index) const {
    if (index < dense_.size() && dense_[index] != 0) return dense_[index];
    if (sparse_.empty()) return 0;
    const auto entry = sparse_.find(index);
    return entry == sparse_.end() ? 0 : entry->second;
  }

  inline std::size_t memory_bytes() const { return dense_.capacity() * sizeof(std::uint64_t) + sparse_.size() * 64; }

 private:
  word_array dense_;
  std::unordered_map<std::uint64_t, std::uint64_t> sparse_;
  std::uint64_t count_ = 0;
};

}  // namespace shardmesh::pickle
