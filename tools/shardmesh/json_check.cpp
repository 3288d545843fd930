// SPDX-License-Identifier: Apache-2.0
// Checks whether a text is JSON, exactly as RFC 8259 defines it. The scanner does not recurse, since values from files
// nest arbitrarily deep. Libraries refuse a lone surrogate (`\udcff`, which stands for a byte that is not UTF-8), which
// is grammatical: hence our own scanner.
#include <cstddef>
#include <string>
#include <string_view>

#include "json_writer.hpp"

namespace tool {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

class scanner {
 public:
  explicit scanner(std::string_view text) : text_(text) {}

  // Checks for one value: repeats a value and the end of containers until the outermost container has ended.
  bool is_one_value() {
    std::string open;  // the brackets that are open
    do {
      if (!value(open) || !after_value(open)) return false;
    } while (!open.empty());
    space();
    return at_ == text_.size();
  }

 private:
  void space() {
    while (at_ < text_.size() && std::string_view(" \t\n\r").find(text_[at_]) != std::string_view::npos) ++at_;
  }
  bool take(char c) {
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool take(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  bool take_digits() {
    const std::size_t from = at_;
    while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
    return at_ > from;
  }

  bool string() {
    if (!take('"')) return false;
    while (at_ < text_.size()) {
      const char c = text_[at_++];
      if (c == '"') return true;
      if (static_cast<unsigned char>(c) < 0x20) return false;
      if (c == '\\' && !escape()) return false;
    }
    return false;
  }
  bool escape() {
    if (at_ == text_.size()) return false;
    const char c = text_[at_++];
    if (c != 'u') return std::string_view("\"\\/bfnrt").find(c) != std::string_view::npos;
    for (int i = 0; i < 4; ++i, ++at_)
      if (at_ == text_.size() || std::string_view("0123456789abcdefABCDEF").find(text_[at_]) == std::string_view::npos)
        return false;
    return true;
  }
  bool number() {
    take('-');
    if (!take('0') && !take_digits()) return false;
    if (take('.') && !take_digits()) return false;
    if (!take('e') && !take('E')) return true;
    if (!take('+')) take('-');
    return take_digits();
  }
  bool name() {
    space();
    if (!string()) return false;
    space();
    return take(':');
  }

  // Reads a plain value, an empty container, or the beginning of a container up to its first value.
  bool value(std::string& open) {
    while (true) {
      space();
      if (take('[')) {
        space();
        if (take(']')) return true;
        open += '[';
      } else if (take('{')) {
        space();
        if (take('}')) return true;
        if (!name()) return false;
        open += '{';
      } else {
        return string_or_word();
      }
    }
  }
  bool string_or_word() {
    if (at_ == text_.size()) return false;
    if (text_[at_] == '"') return string();
    if (text_[at_] == '-' || is_digit(text_[at_])) return number();
    return take("true") || take("false") || take("null");
  }
  // Ends as many containers as possible; true before another value, or if none is open.
  bool after_value(std::string& open) {
    while (!open.empty()) {
      space();
      if (take(',')) return open.back() == '[' || name();
      if (!take(open.back() == '[' ? ']' : '}')) return false;
      open.pop_back();
    }
    return true;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

bool is_json(std::string_view text) {
  return scanner(text).is_one_value();
}

}  // namespace tool
