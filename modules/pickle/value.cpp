// SPDX-License-Identifier: Apache-2.0
// Observers of pickle values. Parsing is in parse.cpp.
module;
#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>
module shardmesh.pickle;

import :stored_number;

namespace shardmesh::pickle {
namespace {

/// Returns the width in bytes of the count after a counted opcode.
std::size_t count_width(char opcode) {
  switch (opcode) {
    case '\x8c':
    case 'U':
    case 'C':
    case '\x8a':
      return 1;
    case 'X':
    case 'T':
    case 'B':
    case '\x8b':
      return 4;
    default:
      return 8;  // BINUNICODE8, BINBYTES8, BYTEARRAY8
  }
}

char opcode_at(const pickle::arena& arena, std::uint64_t offset) {
  return static_cast<char>(arena.input[offset]);
}

/// Returns the argument of a counted opcode.
std::span<const std::byte> counted(const pickle::arena& arena, std::uint64_t offset) {
  const std::size_t width = count_width(opcode_at(arena, offset));
  const std::uint64_t count = little_endian(arena.input.data() + offset + 1, width);
  return arena.input.subspan(offset + 1 + width, count);
}

/// Returns the `n`th line after an opcode, counting from 0, without its newline.
std::string_view line(const pickle::arena& arena, std::uint64_t offset, int n) {
  const auto* text = reinterpret_cast<const char*>(arena.input.data());
  std::size_t begin = offset + 1;
  for (;; --n) {
    const auto* end = static_cast<const char*>(std::memchr(text + begin, '\n', arena.input.size() - begin));
    const auto stop = static_cast<std::size_t>(end - text);
    if (n == 0) return {text + begin, stop - begin};
    begin = stop + 1;
  }
}

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

bool is_long_binary(char opcode) {
  return opcode == '\x8a' || opcode == '\x8b';
}

}  // namespace

void word_array::make_room(std::size_t count) {
  const std::size_t wanted = std::max(size_ + count, capacity_ + capacity_ / 2 + 64);
  void* moved = std::realloc(data_, wanted * sizeof(std::uint64_t));
  if (moved == nullptr) throw std::bad_alloc();
  data_ = static_cast<std::uint64_t*>(moved);
  capacity_ = wanted;
}

void word_array::shrink_to_fit() {
  if (size_ == 0 || size_ == capacity_) return;
  if (void* moved = std::realloc(data_, size_ * sizeof(std::uint64_t))) {
    data_ = static_cast<std::uint64_t*>(moved);
    capacity_ = size_;
  }
}

std::span<const std::byte> raw_opcode(const pickle::arena& arena, std::uint64_t offset) {
  const char opcode = opcode_at(arena, offset);
  if (opcode == 'G') return arena.input.subspan(offset, 9);
  if (opcode == 'I' || opcode == 'L' || opcode == 'F')
    return arena.input.subspan(offset, line(arena, offset, 0).size() + 2);
  return arena.input.subspan(offset, 1 + count_width(opcode) + counted(arena, offset).size());
}

std::string_view name(pickle::kind kind) {
  static constexpr std::array<std::string_view, 17> names{
      "nothing",  "none",  "boolean", "integer", "float",     "text",   "bytes",  "bytearray",
      "list",     "tuple", "dict",    "set",     "frozenset", "global", "record", "persistent reference",
      "extension"};
  return names[static_cast<std::size_t>(kind)];
}

pickle::kind value::kind() const {
  switch (tag_of(bits_)) {
    case tag::absent:
    case tag::block:
      return kind::absent;
    case tag::none:
      return kind::none;
    case tag::boolean:
      return kind::boolean;
    case tag::small_int:
    case tag::int_at:
      return kind::integer;
    case tag::float_at:
      return kind::floating;
    case tag::text_at:
    case tag::text_decoded:
      return kind::text;
    case tag::bytes_at:
    case tag::bytes_decoded:
      return kind::bytes;
    case tag::bytearray_at:
      return kind::bytearray;
    case tag::list:
      return kind::list;
    case tag::dict:
      return kind::dict;
    case tag::set:
      return kind::set;
    case tag::tuple:
      return kind::tuple;
    case tag::frozenset:
      return kind::frozenset;
    case tag::global_at:
    case tag::global_pair:
      return kind::global;
    case tag::reduce:
    case tag::newobj:
    case tag::newobj_ex:
    case tag::instance:
      return kind::record;
    case tag::persistent:
      return kind::persistent;
    case tag::extension:
      return kind::extension;
  }
  return kind::absent;
}

value value::at(std::uint64_t word) const {
  return {arena_, arena_->words[word]};
}

std::optional<bool> value::as_bool() const {
  if (tag_of(bits_) != tag::boolean) return std::nullopt;
  return payload() != 0;
}

std::optional<std::int64_t> value::as_int() const {
  if (tag_of(bits_) == tag::small_int) return static_cast<std::int64_t>(bits_) >> 5;
  if (tag_of(bits_) != tag::int_at) return std::nullopt;
  if (is_long_binary(opcode_at(*arena_, payload()))) return int_of_bytes(counted(*arena_, payload()));
  const std::string digits = decimal_of_line(line(*arena_, payload(), 0));
  std::int64_t number = 0;
  const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (status != std::errc{} || end != digits.data() + digits.size()) return std::nullopt;
  return number;
}

std::optional<std::string> value::decimal(std::size_t max_digits) const {
  if (kind() != kind::integer) return std::nullopt;
  if (const auto number = as_int()) return std::to_string(*number);
  if (is_long_binary(opcode_at(*arena_, payload()))) {
    const auto bytes = counted(*arena_, payload());
    if (static_cast<double>(bytes.size()) * 2.4082 > static_cast<double>(max_digits) + 4) return std::nullopt;
    return decimal_of_bytes(bytes);
  }
  const std::string_view digits = line(*arena_, payload(), 0);
  if (digits.size() > max_digits + 3) return std::nullopt;
  return decimal_of_line(digits);
}

std::optional<double> value::as_float() const {
  if (tag_of(bits_) != tag::float_at) return std::nullopt;
  if (opcode_at(*arena_, payload()) == 'G') {
    std::array<std::byte, 8> bytes;
    std::reverse_copy(arena_->input.begin() + static_cast<std::ptrdiff_t>(payload()) + 1,
                      arena_->input.begin() + static_cast<std::ptrdiff_t>(payload()) + 9, bytes.begin());
    return std::bit_cast<double>(little_endian(bytes.data(), 8));
  }
  const std::string_view text = line(*arena_, payload(), 0);
  double number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  // Out of range means overflow to infinity or underflow to zero, as in Python's float().
  if (status == std::errc::result_out_of_range) return std::strtod(std::string(text).c_str(), nullptr);
  return number;
}

std::optional<std::string_view> value::text() const {
  if (tag_of(bits_) == tag::text_at) return as_text(counted(*arena_, payload()));
  if (tag_of(bits_) != tag::text_decoded) return std::nullopt;
  const auto [begin, size] = arena_->decoded_spans[payload()];
  return std::string_view(arena_->decoded).substr(begin, size);
}

std::optional<std::span<const std::byte>> value::bytes() const {
  if (tag_of(bits_) == tag::bytes_at || tag_of(bits_) == tag::bytearray_at) return counted(*arena_, payload());
  if (tag_of(bits_) != tag::bytes_decoded) return std::nullopt;
  const auto [begin, size] = arena_->decoded_spans[payload()];
  return std::as_bytes(std::span(arena_->decoded).subspan(begin, size));
}

pickle::items value::items() const {
  switch (tag_of(bits_)) {
    case tag::list:
    case tag::set:
      return {arena_, arena_->words[payload()], static_cast<std::size_t>(arena_->words[payload() + 1] >> 32)};
    case tag::tuple:
    case tag::frozenset: {
      const std::uint64_t count = payload() >> 40, first = payload() & ((std::uint64_t{1} << 40) - 1);
      if (count == long_tuple) return {arena_, first + 1, static_cast<std::size_t>(arena_->words[first])};
      return {arena_, first, static_cast<std::size_t>(count)};
    }
    default:
      return {};
  }
}

pickle::pairs value::pairs() const {
  if (tag_of(bits_) != tag::dict) return {};
  return pickle::pairs(
      pickle::items(arena_, arena_->words[payload()], static_cast<std::size_t>(arena_->words[payload() + 1] >> 32)));
}

std::size_t value::size() const {
  return tag_of(bits_) == tag::dict ? pairs().size() : items().size();
}

value value::find(std::string_view key) const {
  const pickle::pairs entries = pairs();
  for (std::size_t i = entries.size(); i-- > 0;)
    if (const auto entry = entries[i]; entry.key.text() == key) return entry.value;
  return {};
}

std::string_view value::global_module() const {
  if (tag_of(bits_) == tag::global_at) return line(*arena_, payload(), 0);
  if (tag_of(bits_) == tag::global_pair) return at(payload()).text().value_or("");
  return {};
}

std::string_view value::global_name() const {
  if (tag_of(bits_) == tag::global_at) return line(*arena_, payload(), 1);
  if (tag_of(bits_) == tag::global_pair) return at(payload() + 1).text().value_or("");
  return {};
}

bool value::is_global(std::string_view module_name, std::string_view attribute) const {
  return kind() == kind::global && global_name() == attribute && global_module() == module_name;
}

pickle::form value::form() const {
  switch (tag_of(bits_)) {
    case tag::newobj:
      return form::newobj;
    case tag::newobj_ex:
      return form::newobj_ex;
    case tag::instance:
      return form::instance;
    default:
      return form::reduce;
  }
}

value value::callable() const {
  return kind() == kind::record ? at(payload()) : value();
}
value value::args() const {
  return kind() == kind::record ? at(payload() + 1) : value();
}

namespace {

/// Returns a part of a record's block; absent when the record has no block.
value block_part(const pickle::arena* arena, std::uint64_t record, std::uint64_t part) {
  const std::uint64_t tail = arena->words[record + 2];
  if (tag_of(tail) != tag::block) return {};
  return {arena, arena->words[(tail >> 5) + part]};
}

}  // namespace

value value::keyword_args() const {
  return kind() == kind::record ? block_part(arena_, payload(), 0) : value();
}
value value::state() const {
  if (kind() != kind::record) return {};
  const std::uint64_t tail = arena_->words[payload() + 2];
  return tag_of(tail) == tag::block ? block_part(arena_, payload(), 1) : value(arena_, tail);
}
value value::appended() const {
  return kind() == kind::record ? block_part(arena_, payload(), 2) : value();
}
value value::assigned() const {
  return kind() == kind::record ? block_part(arena_, payload(), 3) : value();
}

value value::attribute(std::string_view attribute_name) const {
  const value all = state();
  if (all.kind() == kind::dict) return all.find(attribute_name);
  if (all.kind() != kind::tuple || all.size() != 2) return {};
  const pickle::items halves = all.items();
  if (const value found = halves[1].find(attribute_name)) return found;
  return halves[0].find(attribute_name);
}

bool value::is_record_of(std::string_view module_name, std::string_view attribute) const {
  return callable().is_global(module_name, attribute);
}

value value::persistent_id() const {
  return tag_of(bits_) == tag::persistent ? at(payload()) : value();
}

std::size_t graph::memory_bytes() const {
  return sizeof(arena) + arena_->words.capacity() * sizeof(std::uint64_t) + arena_->decoded.capacity() +
         arena_->decoded_spans.capacity() * sizeof(std::pair<std::uint64_t, std::uint64_t>);
}

}  // namespace shardmesh::pickle
