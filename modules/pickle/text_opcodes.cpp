// SPDX-License-Identifier: Apache-2.0
// Opcodes whose argument is a line of text: those of protocol 0, and globals. They are rare in large pickles, so they
// are separate from machine.cpp.
module;
#include <fmt/core.h>

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
module shardmesh.pickle;

import :machine;
import :text;

namespace shardmesh::pickle {

// Reads a name or number. Each access to the value parses its line again, so long lines would be slow.
bool machine::short_line(std::string_view& out) {
  if (!in_.line(out)) return false;
  return out.size() <= 4300 || forgive() ||
         bad(fmt::format("a line of {} bytes is neither a name nor a number", out.size()));
}

bool machine::int_line() {
  std::string_view digits;
  if (!short_line(digits)) return false;
  if (digits == "00" || digits == "01") return push(tag::boolean, digits == "01");
  return integer_text(digits);
}

bool machine::long_line() {
  std::string_view digits;
  if (!short_line(digits)) return false;
  if (digits.ends_with('L')) digits.remove_suffix(1);
  return integer_text(digits);
}

bool machine::integer_text(std::string_view digits) {
  if (!is_integer_text(digits)) return forgive() ? push_int(0) : bad("not an integer");
  return push_int_at_start();
}

bool machine::float_line() {
  std::string_view text;
  if (!short_line(text)) return false;
  double number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (status == std::errc::invalid_argument || end != text.data() + text.size())
    return forgive() ? push_int(0) : bad("not a number");
  return push(tag::float_at, start_);
}

bool machine::text_line(bool raw_unicode) {
  std::string_view text;
  if (!in_.line(text)) return false;
  const std::size_t begin = arena_.decoded.size();
  const bool fine = raw_unicode ? decode_raw_unicode(text, arena_.decoded) : decode_string_repr(text, arena_.decoded);
  if (!fine && forgive()) return push(tag::none, 0);  // a name made of it counts as unknown
  if (!fine) return bad("the string's quotes or escapes are malformed");
  const std::string_view made = std::string_view(arena_.decoded).substr(begin);
  push(raw_unicode || is_utf8(made) ? tag::text_decoded : tag::bytes_decoded, arena_.decoded_spans.size());
  arena_.decoded_spans.emplace_back(begin, made.size());
  return true;
}

bool machine::persistent_line() {
  std::string_view id;
  if (!in_.line(id)) return false;
  const std::size_t begin = arena_.decoded.size();
  arena_.decoded += id;
  arena_.decoded_spans.emplace_back(begin, id.size());
  return persistent(bits_of(tag::text_decoded, arena_.decoded_spans.size() - 1));
}

bool machine::name_lines() {
  std::string_view module_name, attribute;
  if (!short_line(module_name) || !short_line(attribute)) return false;
  return forgive() || (is_utf8(module_name) && is_utf8(attribute)) || bad("the module or name is not UTF-8");
}

bool machine::global_line() {
  if (!name_lines()) return false;
  push(tag::global_at, start_);
  return note_global(stack_.back()), true;
}

bool machine::memo_line(bool is_put) {
  std::string_view digits;
  std::uint64_t index = 0;
  if (!in_.line(digits)) return false;
  const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
  const bool is_number = status == std::errc{} && end == digits.data() + digits.size();
  // Python also accepts "1_0" and " 7". From then on the content of the memo is unknown.
  if (forgive() && !is_number) {
    memo_is_unknown_ = true;
    return is_put || push(tag::none, 0);
  }
  if (!is_number) return bad("the memo index is not a number");
  return is_put ? put(index) : get(index);
}

}  // namespace shardmesh::pickle
