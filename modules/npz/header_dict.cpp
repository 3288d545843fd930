// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
module shardmesh.npz;

import :header_dict;

namespace shardmesh::npz {
namespace {

// Parses the dict. After each function, the position is at the end of the text that the function has read.
class header_parser {
 public:
  explicit header_parser(std::string_view text) : text_(text) {}

  result<array_header> parse() {
    array_header made;
    bool has_descr = false, has_order = false, has_shape = false;
    SHARDMESH_TRY(expect('{'));
    while (!accept('}')) {
      SHARDMESH_TRY(const std::string_view key, text("a key"));
      SHARDMESH_TRY(expect(':'));
      bool* const seen = key == "descr"           ? &has_descr
                         : key == "fortran_order" ? &has_order
                         : key == "shape"         ? &has_shape
                                                  : nullptr;
      if (seen == nullptr) return bad_header(fmt::format("the key \"{}\" is unknown", shortened(escaped(key), 40)));
      if (*seen) return bad_header(fmt::format("the key \"{}\" is there twice", key));
      *seen = true;
      if (seen == &has_descr) SHARDMESH_TRY(read_descr(made));
      if (seen == &has_order) SHARDMESH_TRY(read_order(made));
      if (seen == &has_shape) SHARDMESH_TRY(read_shape(made.shape));
      if (accept(',')) continue;
      SHARDMESH_TRY(expect('}'));
      break;
    }
    skip_space();
    if (at_ != text_.size()) return bad_header("bytes follow the dict");
    if (!has_descr || !has_order || !has_shape)
      return bad_header("it lacks \"descr\", \"fortran_order\", or \"shape\"");
    return made;
  }

 private:
  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r'))
      ++at_;
  }

  bool accept(char wanted) {
    skip_space();
    if (at_ == text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }

  result<void> expect(char wanted) {
    if (accept(wanted)) return {};
    return bad_header("it is not a dict of plain values")
        .with_values(fmt::format("'{}' at character {}", wanted, at_),
                     at_ == text_.size() ? "its end" : fmt::format("'{}'", escaped(text_.substr(at_, 1))));
  }

  // Reads a quoted text. NumPy writes no escapes in the texts that matter here.
  result<std::string_view> text(std::string_view what) {
    skip_space();
    const char quote = at_ < text_.size() ? text_[at_] : '\0';
    if (quote != '\'' && quote != '"') return bad_header(fmt::format("{} is not a text", what));
    const std::size_t begin = at_ + 1, end = text_.find(quote, begin);
    if (end == std::string_view::npos) return bad_header(fmt::format("{} has no end", what));
    at_ = end + 1;
    return text_.substr(begin, end - begin);
  }

  bool accept_word(std::string_view word) {
    skip_space();
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  result<void> read_order(array_header& into) {
    if (accept_word("True")) return into.is_fortran = true, result<void>{};
    return accept_word("False") ? result<void>{} : bad_header("\"fortran_order\" is neither True nor False");
  }

  result<void> read_descr(array_header& into) {
    skip_space();
    const std::size_t begin = at_;
    if (begin < text_.size() && (text_[begin] == '[' || text_[begin] == '(')) {
      SHARDMESH_TRY(skip_nested());
      into.descr = text_.substr(begin, std::min(at_ - begin, max_descr_bytes));
      return {};
    }
    SHARDMESH_TRY(const std::string_view descr, text("\"descr\""));
    into.descr = descr.substr(0, max_descr_bytes);
    return {};
  }

  // Skips a list or tuple, with everything inside.
  result<void> skip_nested() {
    std::size_t depth = 0;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '\'' || c == '"') {
        const std::size_t begin = at_;
        for (++at_; at_ < text_.size() && text_[at_] != text_[begin]; ++at_)
          if (text_[at_] == '\\') ++at_;
        if (at_ >= text_.size()) break;
      }
      if (c == '[' || c == '(') ++depth;
      if (c == ']' || c == ')') --depth;
      ++at_;
      if (depth == 0) return {};
    }
    at_ = std::min(at_, text_.size());
    return bad_header("\"descr\" has no end");
  }

  result<void> read_shape(extents& into) {
    SHARDMESH_TRY(expect('('));
    while (!accept(')')) {
      SHARDMESH_TRY(const std::int64_t size, number());
      if (into.rank() == max_rank)
        return fail(errc::rank_too_large, "has too many dimensions")
            .with_values(fmt::format("at most {}", max_rank), "more");
      into.push_back(size);
      if (accept(',')) continue;
      SHARDMESH_TRY(expect(')'));
      break;
    }
    return {};
  }

  // Reads a size. NumPy on Python 2 wrote "3L".
  result<std::int64_t> number() {
    skip_space();
    const std::size_t begin = at_;
    std::optional<std::int64_t> value = 0;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      if (value) value = checked_multiply(*value, 10);
      if (value) value = checked_add(*value, text_[at_] - '0');
    }
    if (at_ == begin) return bad_header("\"shape\" is not a tuple of sizes");
    if (!value)
      return fail(errc::overflow, "one of its sizes does not fit in 63 bits")
          .with_values("", shortened(text_.substr(begin, at_ - begin), 40));
    if (at_ < text_.size() && text_[at_] == 'L') ++at_;
    return *value;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

error bad_header(std::string message) {
  return fail(errc::bad_format, "malformed header of a NumPy array: " + std::move(message));
}

result<array_header> parse_header_dict(std::string_view text) {
  return header_parser(text).parse();
}

}  // namespace shardmesh::npz
