// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import shardmesh.checkpoint_core;

namespace shardmesh {
namespace {

using json = nlohmann::json;

// Decodes pairs of hexadecimal digits. Other characters give meaningless bytes.
std::string from_hex(std::string_view digits) {
  const auto nibble = [](char c) { return c <= '9' ? c - '0' : (c | 32) - 'a' + 10; };
  std::string bytes;
  for (std::size_t i = 0; i + 1 < digits.size(); i += 2)
    bytes += static_cast<char>((nibble(digits[i]) << 4 | nibble(digits[i + 1])) & 255);
  return bytes;
}

std::string python_quoted(std::string_view text) {
  std::string made = "'";
  for (const char c : escaped(text)) {
    if (c == '\'') made += '\\';
    made += c;
  }
  return made + "'";
}

struct brackets {
  std::string_view tag, open, close;
};
constexpr brackets tagged_brackets[] = {
    {"$tuple", "(", ")"}, {"$size", "torch.Size([", "])"},   {"$set", "{", "}"},    {"$frozenset", "frozenset({", "})"},
    {"$dict", "{", "}"},  {"$odict", "OrderedDict({", "})"}, {"$complex", "(", ")"}};

/// Prints while the JSON is parsed, and stops the parser once there is enough text.
class text_writer final : public nlohmann::json_sax<json> {
 public:
  explicit text_writer(std::size_t most) : most_(most) {}
  std::string out;
  bool is_cut = false;

  bool null() override { return scalar("None"); }
  bool boolean(bool value) override { return scalar(value ? "True" : "False"); }
  bool number_integer(std::int64_t value) override { return number(std::to_string(value)); }
  bool number_unsigned(std::uint64_t value) override { return number(std::to_string(value)); }
  bool number_float(double value, const std::string&) override { return scalar(float_text(value)); }
  bool binary(json::binary_t&) override { return false; }
  bool string(std::string& value) override { return scalar(text_of(value)); }

  bool start_object(std::size_t) override {
    separate();
    open_.push_back({});
    return goes_on();
  }
  bool key(std::string& name) override {
    level& top = open_.back();
    if (top.items == 0 && name.starts_with('$')) {
      top.tag = name;
      if (!is_known(name)) out += escaped(name.substr(1)) + "(";
    } else if (!top.tag.empty()) {  // further members of a $other
      skips_ = name == "data";
      out += skips_ ? "" : " " + escaped(name) + "=";
    } else {
      out += (top.items == 0 ? "{" : ", ") + python_quoted(name) + ": ";
    }
    top.has_first = top.items++ > 0;
    return goes_on();
  }
  bool end_object() override {
    const level top = open_.back();
    open_.pop_back();
    if (top.tag.empty())
      out += top.items == 0 ? "{}" : "}";
    else if (top.tag == "$other")
      out += '>';
    else if (!is_known(top.tag))
      out += ')';
    return goes_on();
  }
  bool start_array(std::size_t) override {
    const bool is_pair = !open_.empty() && open_.back().holds_pairs;
    separate();
    level made;
    made.is_array = true;
    made.close = is_pair ? "" : "]";
    made.is_pair = is_pair;
    std::string_view open = is_pair ? "" : "[";
    const std::string tag = tag_of_top();
    for (const brackets& b : tagged_brackets)
      if (b.tag == tag) {
        open = b.open;
        made.close = b.close;
        made.holds_pairs = tag == "$dict" || tag == "$odict";
        made.tag = tag;
      }
    out += open;
    open_.push_back(std::move(made));
    return goes_on();
  }
  bool end_array() override {
    const level top = open_.back();
    open_.pop_back();
    if (top.tag == "$tuple" && top.items == 1) out += ',';
    out += top.close;
    return goes_on();
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }

 private:
  struct level {
    bool is_array = false, holds_pairs = false, is_pair = false, has_first = false;
    std::size_t items = 0;
    std::string tag;         // of an object, or of the array that is its value
    std::string_view close;  // of an array
  };

  static bool is_known(std::string_view tag) {
    for (const std::string_view scalar_tag :
         {"$int", "$float", "$bytes", "$str", "$dtype", "$device", "$other", "$ref"})
      if (tag == scalar_tag) return true;
    for (const brackets& b : tagged_brackets)
      if (b.tag == tag) return true;
    return false;
  }

  // The tag of an object whose first value comes next; empty for its later members.
  std::string tag_of_top() const {
    if (open_.empty() || open_.back().is_array || open_.back().has_first) return {};
    return open_.back().tag;
  }

  bool goes_on() {
    is_cut = is_cut || out.size() > most_;
    return !is_cut;
  }

  // Writes the separator between this value and the one before it.
  void separate() {
    if (open_.empty()) return;
    level& top = open_.back();
    if (!top.is_array) return;
    if (top.items++ > 0 && top.tag != "$complex") out += top.is_pair ? ": " : ", ";
  }

  bool scalar(std::string_view text) {
    if (std::exchange(skips_, false)) return true;
    separate();
    out += text;
    return goes_on();
  }
  bool number(const std::string& digits) { return tag_of_top() == "$ref" ? scalar("...") : scalar(digits); }

  std::string text_of(const std::string& value) const {
    const std::string tag = tag_of_top();
    const bool in_complex = !open_.empty() && open_.back().is_array && open_.back().tag == "$complex";
    if (in_complex) {
      const std::string part = float_text(std::strtod(value.c_str(), nullptr));
      if (open_.back().items == 0) return part;
      return (part.starts_with('-') ? "" : "+") + part + "j";
    }
    if (tag == "$float") return float_text(std::strtod(value.c_str(), nullptr));
    if (tag == "$int") return escaped(value);
    if (tag == "$bytes") return "b" + python_quoted(from_hex(value));
    if (tag == "$str") return python_quoted(from_hex(value));
    if (tag == "$dtype") return "torch." + escaped(value);
    if (tag == "$device") return escaped(value);
    if (tag == "$other") return "<" + escaped(value);
    return python_quoted(value);
  }

  std::size_t most_;
  bool skips_ = false;  // skip the next value
  std::vector<level> open_;
};

}  // namespace

std::string object_text(std::string_view json_text, std::size_t most_bytes) {
  text_writer writer(most_bytes);
  const bool whole = json::sax_parse(json_text, &writer);
  if (!whole && !writer.is_cut) return escaped(json_text.substr(0, most_bytes));  // not JSON
  std::string text = std::move(writer.out);
  if (text.size() <= most_bytes) return text;
  std::size_t end = most_bytes < 3 ? 0 : most_bytes - 3;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;  // not inside a character
  return text.substr(0, end) + "...";
}

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";  // without a sign, as in Python
  std::string text = fmt::format("{}", value);
  if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";
  return text;
}

std::string object_document(const object_value& value) {
  return fmt::format(R"({{"kind":{},"type":{},"value":{}}})", json_quoted(value.kind), json_quoted(value.type),
                     value.json.empty() ? "null" : value.json);
}

}  // namespace shardmesh
