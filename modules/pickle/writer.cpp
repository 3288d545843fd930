// SPDX-License-Identifier: Apache-2.0
// Writes single values, in protocol 4 or 2. Parsed values are written in `write_value.cpp`.
module;
#include <shardmesh/assert.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.pickle;

import :written_opcode;

namespace shardmesh::pickle {
namespace {
// A longer name is no path of classes. Protocols 0 to 3 do not even read it.
constexpr std::size_t most_split_name = 4300;
}  // namespace

writer::writer(int protocol) : protocol_(protocol) {
  SHARDMESH_ASSERT(protocol == 2 || protocol == 4);
  out_.reserve(512);  // enough for one or two tensors
  put(op::proto);
  put(static_cast<std::uint8_t>(protocol));
}

void writer::put_raw(const void* data, std::size_t count) {
  const auto* first = static_cast<const std::byte*>(data);
  out_.insert(out_.end(), first, first + count);
}

void writer::put_number(std::uint64_t value, int width) {
  for (int i = 0; i < width; ++i) put(static_cast<std::uint8_t>(value >> (8 * i)));
}

void writer::counted(std::uint8_t short_opcode, std::uint8_t opcode, std::uint8_t long_opcode, const void* data,
                     std::size_t count) {
  if (count <= 0xff && short_opcode != 0) {
    put(short_opcode), put_number(count, 1);
  } else if (count <= 0xffffffff && opcode != 0) {
    put(opcode), put_number(count, 4);
  } else {
    put(long_opcode), put_number(count, 8);
  }
  put_raw(data, count);
}

void writer::none() {
  put(op::none);
}
void writer::boolean(bool value) {
  put(value ? op::newtrue : op::newfalse);
}

void writer::integer(std::int64_t value) {
  if (value >= 0 && value <= 0xff) return put(op::binint1), put_number(static_cast<std::uint64_t>(value), 1);
  if (value >= 0 && value <= 0xffff) return put(op::binint2), put_number(static_cast<std::uint64_t>(value), 2);
  if (value >= INT32_MIN && value <= INT32_MAX)
    return put(op::binint), put_number(static_cast<std::uint64_t>(value), 4);
  int width = 8;  // the fewest bytes of two's complement
  while (width > 1 && value >> (8 * (width - 1) - 1) == (value < 0 ? -1 : 0)) --width;
  put(op::long1), put(static_cast<std::uint8_t>(width));
  put_number(static_cast<std::uint64_t>(value), width);
}

void writer::floating(double value) {
  const auto bits = std::bit_cast<std::uint64_t>(value);
  put(op::binfloat);
  for (int shift = 56; shift >= 0; shift -= 8) put(static_cast<std::uint8_t>(bits >> shift));
}

void writer::text(std::string_view value) {
  if (const auto known = texts_.find(value); known != texts_.end()) return recall(known->second);
  counted(is_protocol2() ? 0 : op::short_text, op::text, op::text8, value.data(), value.size());
  texts_.emplace(value, memoize());
}

// Writes bytes in the form of protocol 2: callable(text with one letter per byte, encoding).
void writer::latin1(std::string_view callable_module, std::string_view callable, std::span<const std::byte> content,
                    std::string_view encoding) {
  std::string letters;
  for (const std::byte b : content) {
    const auto letter = static_cast<unsigned>(b);
    if (letter >= 0x80) letters += static_cast<char>(0xC0 | letter >> 6);
    letters += static_cast<char>(letter < 0x80 ? letter : 0x80 | (letter & 0x3F));
  }
  global(callable_module, callable);
  counted(0, op::text, op::text8, letters.data(), letters.size());
  text(encoding);
  put(op::tuple2);
  put(op::reduce);
}

void writer::bytes(std::span<const std::byte> value) {
  if (is_protocol2()) return latin1("_codecs", "encode", value, "latin1");
  counted(op::short_bytes, op::bytes, op::bytes8, value.data(), value.size());
}

void writer::global(std::string_view module_name, std::string_view attribute) {
  const std::pair key(module_name, attribute);
  if (const auto known = globals_.find(key); known != globals_.end()) return recall(known->second);
  const std::size_t dot = attribute.find('.');
  if (is_protocol2() && dot != attribute.npos && attribute.size() <= most_split_name) {
    // Readers split a name at its dots from protocol 4 on. Before that, Python writes a class in a class as
    // getattr(class, name).
    const auto parts = static_cast<std::size_t>(std::ranges::count(attribute, '.'));
    for (std::size_t i = 0; i < parts; ++i) global("builtins", "getattr");
    global(module_name, attribute.substr(0, dot));
    for (std::size_t begin = dot + 1, i = 1; i <= parts; ++i) {
      const std::string_view part = attribute.substr(begin, attribute.find('.', begin) - begin);
      begin += part.size() + 1;
      text(part);
      put(op::tuple2), memoize();
      put(op::reduce);
      if (i < parts) memoize();
    }
  } else if (is_protocol2()) {
    // A line break would end the name, and readers would take the rest for opcodes.
    has_broken_name_ |= (std::string(module_name) += attribute).find('\n') != std::string::npos;
    put(op::global);
    for (const std::string_view part : {module_name, attribute}) put_raw(part.data(), part.size()), put('\n');
  } else {
    text(module_name);
    text(attribute);
    put(op::stack_global);
  }
  globals_.emplace(key, memoize());
}

void writer::empty_tuple() {
  put(op::empty_tuple);
}
void writer::begin_tuple() {
  tuples_.push_back(out_.size());
  put(op::mark);
}
void writer::end_tuple() {
  // The empty tuple has its own opcode without a mark, so the mark is removed again.
  if (out_.size() == tuples_.back() + 1) {
    out_.pop_back();
    put(op::empty_tuple);
  } else {
    put(op::tuple);
  }
  tuples_.pop_back();
}
void writer::begin_list() {
  put(op::empty_list), put(op::mark);
}
void writer::end_list() {
  put(op::appends);
}
void writer::begin_dict() {
  put(op::empty_dict), put(op::mark);
}
void writer::end_dict() {
  put(op::setitems);
}
void writer::reduce() {
  put(op::reduce);
}
void writer::newobj() {
  put(op::newobj);
}
void writer::build() {
  put(op::build);
}
void writer::persistent() {
  put(op::binpersid);
}

std::uint32_t writer::memoize() {
  if (!is_protocol2())
    put(op::memoize);
  else if (memo_count_ <= 0xff)
    put(op::binput), put_number(memo_count_, 1);
  else
    put(op::long_binput), put_number(memo_count_, 4);
  return memo_count_++;
}

void writer::recall(std::uint32_t memo) {
  if (memo <= 0xff) return put(op::binget), put_number(memo, 1);
  put(op::long_binget), put_number(memo, 4);
}

std::vector<std::byte> writer::finish() && {
  put(op::stop);
  return std::move(out_);
}

}  // namespace shardmesh::pickle
