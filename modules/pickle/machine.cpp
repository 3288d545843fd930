// SPDX-License-Identifier: Apache-2.0
// The main loop of the pickle machine and the opcodes of large pickles, in one file for speed. The calls and objects of
// Python are in `object_opcodes.cpp`, and lines of text in `text_opcodes.cpp`.
module;
#include <fmt/core.h>
#include <plural.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
module shardmesh.pickle;

import :machine;
import :opcode;

namespace shardmesh::pickle {
namespace {

// The memory limit of a graph. Metadata of real checkpoints takes about four bytes per input byte.
constexpr std::size_t graph_bytes = std::size_t{1} << 28, graph_bytes_per_byte = 8;

bool fits_small(std::int64_t value) {
  return value >= -(1LL << 58) && value < (1LL << 58);
}

}  // namespace

bool machine::is_too_large() const {
  const std::size_t used = (arena_.words.capacity() + stack_.capacity() + marks_.capacity()) * 8 +
                           memo_.memory_bytes() + arena_.decoded.capacity() + arena_.decoded_spans.capacity() * 16;
  return used > graph_bytes && (used - graph_bytes) / graph_bytes_per_byte > in_.size();
}

bool machine::too_few(std::size_t count) {
  return bad(fmt::format("{} needed, the stack has {}", detail::counted(count, "value is", "values are"),
                         stack_.size() - floor()));
}

bool machine::pop_top() {
  if (stack_.size() > floor()) return pop(), true;
  return marks_.empty() ? bad("the stack is empty") : (marks_.pop_back(), true);
}

bool machine::pop_to_mark() {
  std::size_t begin = 0;
  if (!pop_mark(begin)) return false;
  return stack_.resize(begin), true;
}

// Pushes the integer whose opcode is at start_, as a small one when it fits.
bool machine::push_int_at_start() {
  const std::uint64_t bits = bits_of(tag::int_at, start_);
  const auto small = value_of(bits).as_int();
  return small && fits_small(*small) ? push_int(*small) : push(bits);
}

template <class Unsigned>
bool machine::small_number() {
  Unsigned number = 0;
  return in_.number(number) && push_int(static_cast<std::int64_t>(number));
}

// Pushes the counted string whose opcode is at start_.
template <class Count>
bool machine::counted(tag kind) {
  Count count = 0;
  if (!in_.number(count) || !in_.need(count)) return false;
  const auto content = in_.take(count);
  const bool is_text = kind != tag::text_at ||
                       is_python_text({reinterpret_cast<const char*>(content.data()), content.size()}) || forgive();
  return is_text ? push(kind, start_) : bad("a text is not UTF-8");
}

// Pushes a string of Python 2: as text when it is UTF-8.
template <class Count>
bool machine::byte_string() {
  Count count = 0;
  if (!in_.number(count) || !in_.need(count)) return false;
  const auto content = in_.take(count);
  const bool is_text = is_utf8({reinterpret_cast<const char*>(content.data()), content.size()});
  return push(is_text ? tag::text_at : tag::bytes_at, start_);
}

template <class Count>
bool machine::long_binary() {
  Count count = 0;
  if (!in_.number(count) || !in_.need(count)) return false;
  in_.take(count);
  return push_int_at_start();
}

bool machine::float_binary() {
  if (!in_.need(8)) return false;
  in_.take(8);
  return push(tag::float_at, start_);
}

bool machine::tuple(std::size_t count) {
  if (!has(count)) return false;
  const std::uint64_t made = make_.make_sequence(tag::tuple, std::span(stack_).last(count));
  return replace(stack_.size() - count, made), true;
}

bool machine::tuple_from_mark(tag kind) {
  std::size_t begin = 0;
  if (!pop_mark(begin)) return false;
  return replace(begin, make_.make_sequence(kind, std::span(stack_).subspan(begin))), true;
}

bool machine::add_items(std::size_t begin, tag plain, block_part part) {
  if (begin == 0 || begin - 1 < floor()) return bad("there is nothing to add items to");
  const auto items = std::span(stack_).subspan(begin);
  if (part == block_part::dict && items.size() % 2 != 0) return bad("a key has no value");
  const std::uint64_t target = stack_[begin - 1];
  std::uint64_t container = 0;
  if (forgive() && tag_of(target) != plain && !is_record(target))
    note(event::what::changed, target);
  else if (!items.empty() && !make_.container_of(target, plain, part, container))
    return false;
  // A log of names does not need the items of containers, which are half of its memory.
  else if (!items.empty() && !forgive() && !make_.append(container, items))
    return false;
  stack_.resize(begin);
  return true;
}

bool machine::add_items_from_mark(tag plain, block_part part) {
  std::size_t begin = 0;
  return pop_mark(begin) && add_items(begin, plain, part);
}

bool machine::container_from_mark(tag kind) {
  std::size_t begin = 0;
  if (!pop_mark(begin)) return false;
  const auto items = std::span(stack_).subspan(begin);
  if (kind == tag::dict && items.size() % 2 != 0) return bad("a key has no value");
  const std::uint64_t made = make_.make_container(kind);
  if (!items.empty() && !make_.append(made, items)) return false;
  return replace(begin, made), true;
}

template <class Unsigned>
bool machine::extension() {
  Unsigned code = 0;
  if (!in_.number(code)) return false;
  if (code == 0 || static_cast<std::uint64_t>(code) > 0x7fffffff) return bad("the extension code is not positive");
  push(tag::extension, code);
  return note(event::what::extension, stack_.back()), true;
}

bool machine::get(std::uint64_t index) {
  const std::uint64_t found = memo_is_unknown_ ? bits_of(tag::none, 0)  // a name made of it counts as unknown
                                               : memo_.get(index);
  return found != 0 ? push(found) : bad(fmt::format("the memo has no entry {}", index));
}

template <class Unsigned>
bool machine::put_binary() {
  Unsigned index = 0;
  return in_.number(index) && put(index);
}

template <class Unsigned>
bool machine::get_binary() {
  Unsigned index = 0;
  return in_.number(index) && get(index);
}

bool machine::protocol() {
  std::uint8_t number = 0;
  if (!in_.number(number)) return false;
  if (number > 5) return bad(fmt::format("protocol {} is not supported", number));
  arena_.protocol = std::max<int>(arena_.protocol, number);
  return true;
}

// Frames only help readers of streams. A frame that reaches past the end means that the file was truncated.
bool machine::frame() {
  std::uint64_t length = 0;
  return in_.number(length) && in_.need(length);
}

bool machine::step(unsigned char opcode) {
  switch (opcode) {
    case '(':
      return marks_.push_back(stack_.size()), true;
    case '.':
      if (!has(1)) return false;
      stopped_ = true;
      return true;
    case '0':
      return pop_top();
    case '1':
      return pop_to_mark();
    case '2':
      return has(1) && push(stack_.back());
    case 'F':
      return float_line();
    case 'I':
      return int_line();
    case 'J':
      return small_number<std::int32_t>();
    case 'K':
      return small_number<std::uint8_t>();
    case 'L':
      return long_line();
    case 'M':
      return small_number<std::uint16_t>();
    case 'N':
      return push(tag::none, 0);
    case 'P':
      return persistent_line();
    case 'Q':
      return has(1) && persistent(pop());
    case 'R':
      return record(tag::reduce);
    case 'S':
      return text_line(false);
    case 'T':
      return byte_string<std::uint32_t>();
    case 'U':
      return byte_string<std::uint8_t>();
    case 'V':
      return text_line(true);
    case 'X':
      return counted<std::uint32_t>(tag::text_at);
    case 'a':
      return has(2) && add_items(stack_.size() - 1, tag::list, block_part::list);
    case 'b':
      return build();
    case 'c':
      return global_line();
    case 'd':
      return container_from_mark(tag::dict);
    case '}':
      return push(make_.make_container(tag::dict));
    case 'e':
      return add_items_from_mark(tag::list, block_part::list);
    case 'g':
      return memo_line(false);
    case 'h':
      return get_binary<std::uint8_t>();
    case 'i':
      return instance(true);
    case 'j':
      return get_binary<std::uint32_t>();
    case 'l':
      return container_from_mark(tag::list);
    case ']':
      return push(make_.make_container(tag::list));
    case 'o':
      return instance(false);
    case 'p':
      return memo_line(true);
    case 'q':
      return put_binary<std::uint8_t>();
    case 'r':
      return put_binary<std::uint32_t>();
    case 's':
      return has(3) && add_items(stack_.size() - 2, tag::dict, block_part::dict);
    case 't':
      return tuple_from_mark(tag::tuple);
    case ')':
      return push(make_.make_sequence(tag::tuple, {}));
    case 'u':
      return add_items_from_mark(tag::dict, block_part::dict);
    case 'G':
      return float_binary();
    case 'B':
      return counted<std::uint32_t>(tag::bytes_at);
    case 'C':
      return counted<std::uint8_t>(tag::bytes_at);
    case 0x80:
      return protocol();
    case 0x81:
      return record(tag::newobj);
    case 0x82:
      return extension<std::uint8_t>();
    case 0x83:
      return extension<std::uint16_t>();
    case 0x84:
      return extension<std::uint32_t>();
    case 0x85:
      return tuple(1);
    case 0x86:
      return tuple(2);
    case 0x87:
      return tuple(3);
    case 0x88:
      return push(tag::boolean, 1);
    case 0x89:
      return push(tag::boolean, 0);
    case 0x8a:
      return long_binary<std::uint8_t>();
    case 0x8b:
      return long_binary<std::uint32_t>();
    case 0x8c:
      return counted<std::uint8_t>(tag::text_at);
    case 0x8d:
      return counted<std::uint64_t>(tag::text_at);
    case 0x8e:
      return counted<std::uint64_t>(tag::bytes_at);
    case 0x8f:
      return push(make_.make_container(tag::set));
    case 0x90:
      return add_items_from_mark(tag::set, block_part::list);
    case 0x91:
      return tuple_from_mark(tag::frozenset);
    case 0x92:
      return newobj_ex();
    case 0x93:
      return stack_global();
    case 0x94:
      return put(memo_.size());
    case 0x95:
      return frame();
    case 0x96:
      return counted<std::uint64_t>(tag::bytearray_at);
    case 0x98:
      if (forgive()) return has(1);  // Python makes any buffer read-only, and bytes are one
      [[fallthrough]];
    case 0x97:
      return bad("out-of-band buffers are not supported");
    default:
      return bad(fmt::format("0x{:02x} is not an opcode", opcode));
  }
}

bool machine::run_to_stop() {
  stack_.reserve(64);
  marks_.reserve(16);
  for (std::size_t steps = 0; !stopped_; ++steps) {
    start_ = in_.position();
    if (in_.is_at_end()) return problem_.cut("the stream ends without STOP");
    if (steps % 4096 == 0 && is_too_large()) return bad(too_large);
    if (!step(in_.next())) return false;
  }
  return true;
}

result<void> machine::run() {
  if (!run_to_stop()) {
    const std::string_view opcode = start_ < in_.size() ? opcode_name(in_.byte_at(start_)) : "end of input";
    auto problem =
        fail(errc::bad_pickle, fmt::format("malformed pickle at byte {} ({}): {}", start_, opcode, problem_.text));
    return problem_.is_cut ? std::move(problem).with_values("", std::string(cut_short)) : problem;
  }
  arena_.root = stack_.back();
  arena_.consumed = in_.position();
  arena_.words.shrink_to_fit();
  return {};
}

}  // namespace shardmesh::pickle
