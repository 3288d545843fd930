// SPDX-License-Identifier: Apache-2.0
// Not exported: runs the pickle machine without values, and tracks where in the source each stack slot came from. It
// finds the dict items to leave out, and where memo entries are made. The result is in excerpt.
module shardmesh.pickle:skimmer;

import shardmesh.std;
import shardmesh.core;
import :excerpt;
import :skim;

namespace shardmesh::pickle {

// The opcodes in [begin, end), and the number of memo entries before and after them.
struct opcode_range {
  std::int64_t begin = 0, end = 0;
  std::uint64_t memo_begin = 0, memo_end = 0;
};

// One pass over the opcodes, and its findings. With a non-empty `wanted_memo`, the pass ends as soon as it has found
// all of these entries.
class skimmer {
 public:
  // `filter` is null for a pass that only looks for the definitions of memo entries.
  skimmer(const excerpt_filter* filter, std::span<const std::uint64_t> wanted_memo);

  // Returns false when the pickle is unusual or truncated.
  bool run(opcode_stream& in);

  // The items to leave out, ascending; empty when no dict of the filter was found.
  const std::vector<opcode_range>& dropped() const { return dropped_; }
  bool met_dict() const { return met_dict_; }
  // The offset after STOP, and the number of memo entries there.
  std::int64_t end() const { return end_; }
  std::uint64_t memo_count() const { return memo_count_; }
  // By memo number: the opcodes that make the entry, up to the last one that changes it.
  const std::map<std::uint64_t, opcode_range>& definitions() const { return definitions_; }

 private:
  enum class kind : std::uint64_t { plain, attribute, wanted, alias };
  struct slot {
    std::int64_t begin;
    std::uint64_t memo : 60;
    std::uint64_t what : 4;
  };
  struct mark {
    std::size_t size;
    std::int64_t begin;
    std::uint64_t memo;
  };
  struct pending {
    std::size_t slot;
    std::uint64_t number;
  };

  bool step(const token& t);
  inline bool push(const token& t, kind what = kind::plain) {
    if (stack_.size() >= most_slots) return false;
    stack_.push_back({t.begin, memo_count_, static_cast<std::uint64_t>(what)});
    return true;
  }
  bool push_text(const token& t);
  bool get(const token& t);
  // Picklers number the memo in order. The skimmer rejects any other numbering.
  inline bool put(std::uint64_t number) {
    if (!has(1) || number != memo_count_) return false;
    ++memo_count_;
    return (stack_.back().what != static_cast<std::uint64_t>(kind::wanted) && wanted_memo_.empty()) || note_put(number);
  }
  bool note_put(std::uint64_t number);
  bool collapse(std::size_t count, const token& t);
  bool collapse_to_mark(const token& t);
  bool add(std::size_t begin, const token& t, bool is_dict);
  bool add_from_mark(const token& t, bool is_dict);
  void drop_items(std::size_t begin, const token& t);
  // Values that leave the stack are complete: each ends where the value above it begins, or at this opcode.
  inline void shrink(std::size_t size, const token& t) {
    if (!pending_.empty()) define(size, t);
    stack_.resize(size);
  }
  void define(std::size_t size, const token& t);
  inline std::size_t floor() const { return marks_.empty() ? 0 : marks_.back().size; }
  inline bool has(std::size_t count) const { return stack_.size() - floor() >= count; }
  inline bool is_complete() const { return filter_ == nullptr && definitions_.size() == wanted_memo_.size(); }

  static constexpr std::size_t most_slots = std::size_t{1} << 22;

  const excerpt_filter* filter_;
  std::set<std::uint64_t> wanted_memo_;
  std::vector<slot> stack_;
  std::vector<mark> marks_;
  std::uint64_t memo_count_ = 0;
  std::int64_t end_ = 0;
  bool stopped_ = false, met_dict_ = false;

  std::uint64_t wanted_lengths_ = 0;  // bit n is set when a wanted text's size is n mod 64
  std::set<std::string, std::less<>> wanted_texts_;
  std::set<std::uint64_t> known_wanted_;     // memo numbers of wanted texts
  std::vector<std::uint64_t> known_filter_;  // one bit per number mod 65536
  std::vector<std::int64_t> hits_;           // offsets of wanted texts since items were last chosen
  std::vector<opcode_range> dropped_;
  std::vector<pending> pending_;
  std::map<std::uint64_t, opcode_range> definitions_;
};

}  // namespace shardmesh::pickle
