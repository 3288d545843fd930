// SPDX-License-Identifier: Apache-2.0
module;
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.safetensors;

import :usual_header;

namespace shardmesh::safetensors {
namespace {

using texts = std::vector<std::pair<std::string, std::string>>;

// Each member returns whether the text continues as its name says; on success it has advanced past that part.
class scanner {
 public:
  explicit scanner(std::string_view text) : at_(text.data()), end_(text.data() + text.size()) {}

  bool header(texts& metadata, raw_entry_visitor visit) {
    bool has_metadata = false;
    std::string name;
    const bool is_whole = members([&] {
      if (!string(name) || !is(':')) return false;
      if (name != "__metadata__") return entry(name, visit);
      return !std::exchange(has_metadata, true) && texts_of(metadata);
    });
    return is_whole && (skip_space(), at_ == end_);
  }

 private:
  void skip_space() {
    while (at_ != end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\t' || *at_ == '\r')) ++at_;
  }
  bool is(char wanted) {
    skip_space();
    if (at_ == end_ || *at_ != wanted) return false;
    return ++at_, true;
  }

  // Parses a comma-separated list between two brackets.
  template <class Member>
  bool list(char open, char close, Member member) {
    if (!is(open)) return false;
    if (is(close)) return true;
    do
      if (!member()) return false;
    while (is(','));
    return is(close);
  }
  template <class Member>
  bool members(Member member) {
    return list('{', '}', member);
  }

  bool entry(std::string& name, raw_entry_visitor visit) {
    raw_entry& made = entry_;
    made = {};
    made.name = std::move(name);
    return members([&] { return field(made); }) && made.has_type && made.has_shape && made.has_offsets && visit(made);
  }
  bool field(raw_entry& made) {
    std::string_view name;
    if (!plain_string(name) || !is(':')) return false;
    if (name == "dtype") return !std::exchange(made.has_type, true) && string(made.type);
    if (name == "shape") return !std::exchange(made.has_shape, true) && numbers(made.shape, made.rank);
    return name == "data_offsets" && !std::exchange(made.has_offsets, true) &&
           numbers(made.offsets, made.offset_count) && made.offset_count == 2;
  }
  bool numbers(std::span<std::int64_t> values, std::size_t& count) {
    return list('[', ']', [&] { return count < values.size() && number(values[count++]); });
  }
  // Reads a number of up to 18 digits, which always fits. Any other character ends the number; the caller checks it.
  bool number(std::int64_t& value) {
    skip_space();
    const char* const first = at_;
    value = 0;
    while (at_ != end_ && *at_ >= '0' && *at_ <= '9' && at_ - first < 18) value = 10 * value + (*at_++ - '0');
    const auto digits = at_ - first;
    return digits > 0 && (*first != '0' || digits == 1);
  }

  bool texts_of(texts& metadata) {
    const bool is_whole = members([&] {
      auto& [key, value] = metadata.emplace_back();
      return string(key) && is(':') && string(value);
    });
    std::vector<std::string_view> keys;
    for (const auto& [key, value] : metadata) keys.push_back(key);
    std::sort(keys.begin(), keys.end());
    return is_whole && std::adjacent_find(keys.begin(), keys.end()) == keys.end();
  }

  // Finds a string including its quotes, and advances past it.
  bool quoted(std::string_view& found) {
    skip_space();
    if (at_ == end_ || *at_ != '"') return false;
    const char* const first = at_++;
    for (;; ++at_) {
      at_ = static_cast<const char*>(std::memchr(at_, '"', static_cast<std::size_t>(end_ - at_)));
      if (at_ == nullptr) return at_ = end_, false;
      std::size_t slashes = 0;
      while (at_[-1 - static_cast<std::ptrdiff_t>(slashes)] == '\\') ++slashes;  // stops at the opening quote
      if (slashes % 2 == 0) break;
    }
    found = {first, static_cast<std::size_t>(++at_ - first)};
    return true;
  }
  // ASCII without escapes needs no decoding.
  static bool is_plain(std::string_view inside) {
    unsigned other = 0;
    for (const char c : inside) other |= static_cast<unsigned char>(c) - 0x20U >= 0x60U || c == '\\' ? 1U : 0U;
    return other == 0;
  }
  bool plain_string(std::string_view& text) {
    if (!quoted(text)) return false;
    text = text.substr(1, text.size() - 2);
    return is_plain(text);
  }
  // Reads a string. The library decodes escapes and UTF-8, and refuses malformed text.
  bool string(std::string& text) {
    std::string_view whole;
    if (!quoted(whole)) return false;
    if (const std::string_view inside = whole.substr(1, whole.size() - 2); is_plain(inside)) {
      text = inside;
      return true;
    }
    nlohmann::json decoded = nlohmann::json::parse(whole, nullptr, false);
    if (!decoded.is_string()) return false;
    text = std::move(decoded.get_ref<std::string&>());
    return true;
  }

  const char* at_;
  const char* end_;
  raw_entry entry_;
};

}  // namespace

bool scan_usual_header(std::string_view text, texts& metadata, raw_entry_visitor visit) {
  return scanner(text).header(metadata, visit);
}

}  // namespace shardmesh::safetensors
