// SPDX-License-Identifier: Apache-2.0
// Not exported: the memo of a pickle, values by number.
module shardmesh.pickle:memo;

import shardmesh.std;
import :memo_use;
import :value;

namespace shardmesh::pickle {

class memo {
 public:
  /// Prepares the memo of the pickle at the start of these bytes. For a long pickle it keeps only the entries that the
  /// pickle fetches, because all entries together would take as much memory as the pickle.
  explicit memo(std::span<const std::byte> bytes) {
    if (bytes.size() < long_pickle) return;
    use_ = memo_use_of(bytes);
    if (use_) dense_.grow(use_->size());
  }

  /// True when the fetched entries are known. Then only the stack refers to a value that the memo did not keep.
  inline bool knows_use() const { return use_.has_value(); }
  /// Returns the number of entries, which is the number that MEMOIZE assigns next.
  inline std::uint64_t size() const { return count_; }

  /// Stores an entry. Returns false when nothing fetches it.
  /// \param offset  byte offset of the opcode in the input. Picklers number the memo in order, so indices stay below
  ///   it. Other indices go into a map, so an absurd index costs no more than a small one.
  inline bool put(std::uint64_t index, std::uint64_t bits, std::size_t offset) {
    if (use_) {
      ++count_;  // a pickle with known use numbers its memo in order
      if (!use_->contains(index)) return false;
      dense_[use_->rank(index)] = bits;
    } else if (index <= offset) {
      if (index >= dense_.size()) dense_.grow(index + 1 - dense_.size());
      count_ += dense_[index] == 0;
      dense_[index] = bits;
    } else {
      count_ += sparse_.insert_or_assign(index, bits).second;
    }
    return true;
  }
  /// Returns an entry, or 0 when there is none.
  inline std::uint64_t get(std::uint64_t index) const {
    if (use_) return use_->contains(index) ? dense_[use_->rank(index)] : 0;
    if (index < dense_.size() && dense_[index] != 0) return dense_[index];
    if (sparse_.empty()) return 0;
    const auto entry = sparse_.find(index);
    return entry == sparse_.end() ? 0 : entry->second;
  }

  inline std::size_t memory_bytes() const {
    return dense_.capacity() * sizeof(std::uint64_t) + sparse_.size() * 64 + (use_ ? use_->memory_bytes() : 0);
  }

 private:
  static constexpr std::size_t long_pickle = 1 << 16;

  std::optional<memo_use> use_;  // when set, `dense_` has one element per fetched entry
  word_array dense_;
  std::unordered_map<std::uint64_t, std::uint64_t> sparse_;
  std::uint64_t count_ = 0;
};

}  // namespace shardmesh::pickle
