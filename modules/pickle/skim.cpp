// SPDX-License-Identifier: Apache-2.0
module;
#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <system_error>
#include <utility>
module shardmesh.pickle;

import :skim;

namespace shardmesh::pickle {

opcode_stream::opcode_stream(read_at read, std::int64_t begin, std::int64_t end, std::size_t window_bytes,
                             bool joins_memoize)
    : read_(read),
      window_(std::max(window_bytes, 2 * max_text)),
      window_begin_(begin),
      end_(end),
      joins_memoize_(joins_memoize) {}

// Moves the unread bytes to the front of the window and reads more after them.
bool opcode_stream::refill(std::size_t count) {
  const std::size_t left = filled_ - at_;
  std::memmove(window_.data(), window_.data() + at_, left);
  window_begin_ += static_cast<std::int64_t>(at_);
  at_ = 0;
  filled_ = left;
  const std::int64_t rest = end_ - window_begin_ - static_cast<std::int64_t>(left);
  const auto wanted =
      static_cast<std::size_t>(std::min<std::int64_t>(rest, static_cast<std::int64_t>(window_.size() - left)));
  if (wanted > 0) {
    if (auto done = read_(window_begin_ + static_cast<std::int64_t>(left), std::span(window_).subspan(left, wanted));
        !done) {
      problem_ = std::move(done).error();
      return fail_here();
    }
  }
  filled_ += wanted;
  return filled_ >= count;
}

bool opcode_stream::skip(std::uint64_t count) {
  if (count <= filled_ - at_) return at_ += static_cast<std::size_t>(count), true;
  if (count > static_cast<std::uint64_t>(end_ - position())) return false;
  window_begin_ = position() + static_cast<std::int64_t>(count);
  at_ = filled_ = 0;
  return true;
}

bool opcode_stream::counted(token& out, std::size_t width, bool is_text) {
  if (!have(width)) return false;
  const std::uint64_t count = number(width);
  if (!is_text || count > max_text) return skip(count);
  if (!have(static_cast<std::size_t>(count))) return false;
  out.is_text = true;
  out.text = {reinterpret_cast<const char*>(window_.data()) + at_, static_cast<std::size_t>(count)};
  at_ += static_cast<std::size_t>(count);
  return true;
}

bool opcode_stream::line(std::string& out) {
  out.clear();
  for (;;) {
    if (!have(1)) return false;
    const char c = static_cast<char>(window_[at_++]);
    if (c == '\n') return true;
    if (out.size() < max_text) out += c;
  }
}

bool opcode_stream::argument(token& out) {
  std::string text;
  switch (out.opcode) {
    case 0x8c:
    case 'U':
      return counted(out, 1, true);
    case 'X':
    case 'T':
      return counted(out, 4, true);
    case 0x8d:
      return counted(out, 8, true);
    case 'C':
    case 0x8a:
      return counted(out, 1, false);
    case 'B':
    case 0x8b:
      return counted(out, 4, false);
    case 0x8e:
    case 0x96:
      return counted(out, 8, false);
    case 'q':
    case 0x80:
    case 0x82:
      if (!have(1)) return false;
      out.number = number(1);
      return true;
    case 'M':
    case 0x83:
      return skip(2);
    case 'r':
      if (!have(4)) return false;
      out.number = number(4);
      return true;
    case 0x84:
      return skip(4);
    case 'G':
    case 0x95:
      return skip(8);
    case 'c':
    case 'i':
      return line(text) && line(text);
    case 'F':
    case 'I':
    case 'L':
    case 'P':
      return line(text);
    case 'g':
    case 'p': {
      if (!line(text)) return false;
      const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), out.number);
      return code == std::errc{} && end == text.data() + text.size();
    }
    case '.':
    case 's':
    case 't':
    case 'e':
    case 'd':
    case 'l':
    case 'o':
    case 'Q':
    case 0x87:
    case 0x88:
    case 0x89:
    case 0x8f:
    case 0x90:
    case 0x91:
    case 0x92:
    case 0x93:
      return true;
    default:  // DUP, POP, and POP_MARK, which no pickler uses to make dicts; escaped text; unknown opcodes
      return false;
  }
}

}  // namespace shardmesh::pickle
