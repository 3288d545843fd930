// SPDX-License-Identifier: Apache-2.0
// Not exported: reads a pickle's opcodes one by one through a window over the source, without making values. The values
// are in machine.
module shardmesh.pickle:skim;

import shardmesh.std;
import shardmesh.core;

namespace shardmesh::pickle {

// Fills `out` with the source's bytes from `offset` on.
using read_at = function_ref<result<void>(std::int64_t offset, std::span<std::byte> out)>;

// One opcode with its argument.
struct token {
  unsigned char opcode = 0;
  std::int64_t begin = 0, end = 0;
  std::uint64_t number = 0;  // the argument of GET and PUT
  bool is_memoized = false;  // a MEMOIZE follows and is part of this token, as for most values
  std::string_view text;     // a counted string of at most `max_text` bytes; valid until the next token
  bool is_text = false;
};

// The opcodes of a range of the source. Unknown opcodes, truncated opcodes, and escaped text (protocol 0) end the
// stream.
class opcode_stream {
 public:
  static constexpr std::size_t max_text = 4096;

  // With `joins_memoize`, an opcode and the MEMOIZE after it are one token when the window holds both.
  opcode_stream(read_at read, std::int64_t begin, std::int64_t end, std::size_t window_bytes, bool joins_memoize);

  // Returns false at the end and after a problem; `failed` tells them apart.
  inline bool next(token& out);
  bool failed() const { return failed_; }
  // The source's error, when a read failed.
  const std::optional<error>& problem() const { return problem_; }

 private:
  inline std::int64_t position() const { return window_begin_ + static_cast<std::int64_t>(at_); }
  // Ensures that the window holds `count` bytes from here on, at most max_text + 16. Returns false when there are
  // fewer, without marking the stream as failed.
  inline bool have(std::size_t count) { return filled_ - at_ >= count || refill(count); }
  bool refill(std::size_t count);
  bool skip(std::uint64_t count);
  bool counted(token& out, std::size_t width, bool is_text);
  bool line(std::string& out);
  bool fail_here() { return failed_ = true, false; }
  inline std::uint64_t number(std::size_t width) {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < width; ++i) value |= std::to_integer<std::uint64_t>(window_[at_ + i]) << (8 * i);
    at_ += width;
    return value;
  }
  bool argument(token& out);

  read_at read_;
  std::vector<std::byte> window_;
  std::int64_t window_begin_, end_;
  std::size_t at_ = 0, filled_ = 0;
  const bool joins_memoize_;
  bool failed_ = false;
  std::optional<error> problem_;
};

inline bool opcode_stream::next(token& out) {
  if (!have(1)) return false;
  out.begin = position();
  out.opcode = std::to_integer<unsigned char>(window_[at_++]);
  out.is_text = false;
  switch (out.opcode) {  // the most frequent opcodes of metadata; `argument` handles all others
    case 'h':
    case 'K':
      if (!have(1)) return fail_here();
      out.number = number(1);
      break;
    case 'j':
    case 'J':
      if (!have(4)) return fail_here();
      out.number = number(4);
      break;
    case 0x94:
    case '}':
    case '(':
    case 'u':
    case 'b':
    case ')':
    case 0x81:
    case 0x85:
    case 0x86:
    case 'R':
    case ']':
    case 'a':
    case 'N':
      break;
    default:
      if (!argument(out)) return fail_here();
  }
  out.is_memoized = false;
  if (joins_memoize_ && at_ < filled_ && window_[at_] == std::byte{0x94}) {
    out.is_memoized = true;
    ++at_;
  }
  out.end = position();
  return true;
}

}  // namespace shardmesh::pickle
