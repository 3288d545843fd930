// SPDX-License-Identifier: Apache-2.0
// Not exported: the pickle machine. It makes one pass over the opcodes, with a stack, a memo, and no recursion. Input
// bytes bound every allocation. The memory layout of values is in arena_writer; the use of the result is in parse.cpp.
module shardmesh.pickle:machine;

import shardmesh.std;
import shardmesh.core;
import :arena_writer;
import :input;
import :memo;
import :trace;
import :value;

namespace shardmesh::pickle {

// The error for values that need too much memory.
inline constexpr const char* too_large = "its values need more memory than its size justifies";

// Functions that return false have recorded the reason: the hot path has no result objects.
class machine {
 public:
  /// With `log`, the run records events there. With `forgives`, the machine accepts what Python's unpickler accepts,
  /// and containers stay empty: such a run serves only the log.
  explicit machine(pickle::arena& arena, event_log* log = nullptr, bool forgives = false)
      : arena_(arena),
        in_(arena.input, problem_),
        make_(arena, problem_),
        log_(log),
        forgives_(forgives),
        memo_(arena.input) {}
  /// Runs up to STOP and stores the root in the arena. Fails with errc::bad_pickle, the opcode, and its byte offset.
  result<void> run();
  /// Returns the byte offset of the last opcode.
  std::size_t position() const { return start_; }

 private:
  bool run_to_stop();
  bool step(unsigned char opcode);
  bool is_too_large() const;
  bool bad(std::string message) { return problem_.bad(std::move(message)); }
  // True when errors that Python tolerates are ignored, so that a trace continues past them.
  inline bool forgive() const { return forgives_; }

  // The stack. A mark hides the values below it.
  inline std::size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  inline bool has(std::size_t count) { return stack_.size() - floor() >= count || too_few(count); }
  bool too_few(std::size_t count);
  inline bool push(std::uint64_t bits) { return stack_.push_back(bits), true; }
  inline bool push(tag kind, std::uint64_t payload) { return push(bits_of(kind, payload)); }
  inline std::uint64_t pop() {
    const std::uint64_t top = stack_.back();
    stack_.pop_back();
    return top;
  }
  inline bool pop_mark(std::size_t& begin) {
    if (marks_.empty()) return bad("there is no mark");
    begin = marks_.back();
    marks_.pop_back();
    return true;
  }
  /// Replaces the stack's values from `begin` on by one value.
  inline void replace(std::size_t begin, std::uint64_t bits) {
    stack_.resize(begin);
    stack_.push_back(bits);
  }
  bool pop_top();
  bool pop_to_mark();

  // Numbers and strings stay in the input; values refer to them.
  inline bool push_int(std::int64_t value) { return push(tag::small_int, static_cast<std::uint64_t>(value)); }
  bool push_int_at_start();
  template <class Unsigned>
  bool small_number();
  template <class Count>
  bool counted(tag kind);
  template <class Count>
  bool byte_string();
  template <class Count>
  bool long_binary();
  bool short_line(std::string_view& out);
  bool int_line();
  bool long_line();
  bool integer_text(std::string_view digits);
  bool float_line();
  bool float_binary();
  bool text_line(bool raw_unicode);

  // Containers.
  bool tuple(std::size_t count);
  bool tuple_from_mark(tag kind);
  bool add_items(std::size_t begin, tag plain, block_part part);
  bool add_items_from_mark(tag plain, block_part part);
  bool container_from_mark(tag kind);

  // Names that Python would look up, and calls that it would make.
  bool name_lines();
  bool global_line();
  bool stack_global();
  bool record(tag kind);
  std::uint64_t shared_args(std::uint64_t args);
  bool newobj_ex();
  bool instance(bool is_named);
  bool build();
  bool persistent(std::uint64_t id);
  bool persistent_line();
  template <class Unsigned>
  bool extension();

  // The memo.
  inline bool put(std::uint64_t index) {
    if (!has(1)) return false;
    if (memo_.put(index, stack_.back(), in_.position())) kept_end_ = make_.end();
    return true;
  }
  bool get(std::uint64_t index);
  bool memo_line(bool is_put);
  template <class Unsigned>
  bool put_binary();
  template <class Unsigned>
  bool get_binary();

  bool protocol();
  bool frame();
  inline pickle::value value_of(std::uint64_t bits) const { return make_.value_of(bits); }
  inline void note(event::what kind, std::uint64_t bits) {
    if (log_ != nullptr) log_->note(kind, value_of(bits));
  }
  inline void note_global(std::uint64_t bits) {
    if (log_ != nullptr) log_->note_global(value_of(bits));
  }
  inline void note_call(std::uint64_t callable, std::uint64_t args, std::uint64_t call) {
    if (log_ != nullptr) log_->note_call(value_of(callable), value_of(args), value_of(call));
  }

  pickle::arena& arena_;
  failure problem_;
  input in_;
  arena_writer make_;
  event_log* log_;
  const bool forgives_;
  std::size_t start_ = 0;  // offset of the current opcode
  bool stopped_ = false;
  std::vector<std::uint64_t> stack_;
  std::vector<std::size_t> marks_;
  pickle::memo memo_;
  std::uint64_t kept_end_ = 0;  // the arena's end when the memo last kept a value; only the stack refers to later words
  std::array<std::uint64_t, 256> recent_args_{};  // indexed by hash
  bool memo_is_unknown_ = false;
  std::uint64_t given_entries_ = 0;  // entries added by OrderedDict([...])
};

}  // namespace shardmesh::pickle
