// SPDX-License-Identifier: Apache-2.0
// Not exported: the pickle machine without values: for each place on the stack where in the source it came from. It
// finds the items of dicts that nobody wants, and where values of the memo are made. Not here: the result (excerpt).
module shardmesh.pickle:skimmer;

import shardmesh.std;
import shardmesh.core;
import :excerpt;
import :skim;

namespace shardmesh::pickle {

// Opcodes [begin, end), and how many entries the memo has before them and behind.
struct opcode_range {
  std::int64_t begin = 0, end = 0;
  std::uint64_t memo_begin = 0, memo_end = 0;
};

// What is found in one pass; the pass ends early when all of `wanted_memo` is found, where that is not empty.
class skimmer {
 public:
  // `filter`: null for a pass that only looks for where entries of the memo are made.
  skimmer(const excerpt_filter* filter, std::span<const std::uint64_t> wanted_memo);

  // False when the pickle is unusual, or cut off.
  bool run(opcode_stream& in);

  // Items to leave out, ascending; none where no dict of the filter was met.
  const std::vector<opcode_range>& dropped() const { return dropped_; }
  bool met_dict() const { return met_dict_; }
  // Behind STOP, and the entries that the memo has then.
  std::int64_t end() const { return end_; }
  std::uint64_t memo_count() const { return memo_count_; }
  // By number in the memo: what makes the entry, to the last opcode that changes it.
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
  // Picklers number the memo in order; of other numbers nobody knows here what they are.
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
  // What leaves the stack is complete: it ends where what lies above it begins, or this opcode.
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

  std::uint64_t wanted_lengths_ = 0;  // bit n: a wanted text has n mod 64 bytes
  std::set<std::string, std::less<>> wanted_texts_;
  std::set<std::uint64_t> known_wanted_;     // numbers in the memo of wanted texts
  std::vector<std::uint64_t> known_filter_;  // bits, by number mod 65536
  std::vector<std::int64_t> hits_;           // where wanted texts are named, since the last items were chosen
  std::vector<opcode_range> dropped_;
  std::vector<pending> pending_;
  std::map<std::uint64_t, opcode_range> definitions_;
};

}  // namespace shardmesh::pickle
