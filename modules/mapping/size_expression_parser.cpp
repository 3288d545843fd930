// SPDX-License-Identifier: Apache-2.0
// The text of a size expression, parsed. Evaluation is in `size_expression`.
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <cctype>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>
module shardmesh.mapping;

namespace shardmesh {
namespace {

// The deepest nesting of parentheses and prefix operators. No real formula nests deeper.
constexpr int most_levels = 64;
// A longer text could nest its operations too deep to evaluate them recursively.
constexpr std::size_t most_characters = 4096;

bool is_name_start(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_';
}

// Names of a configuration may be dotted: "text_config.hidden_size".
bool is_name_part(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.';
}

}  // namespace

// Recursive descent, one function per level of precedence.
class size_expression::parser {
 public:
  explicit parser(std::string_view text) : text_(text) {}

  result<std::vector<node>> run() {
    SHARDMESH_TRY(otherwise());
    skip_spaces();
    if (at_ < text_.size()) return refuse("an operator or the end");
    return std::move(nodes_);
  }

 private:
  using step = result<std::size_t>;  // the index of the parsed node

  void skip_spaces() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }

  // Consumes `token`. A word must end there, and "/" is not the first half of "//".
  bool take(std::string_view token) {
    skip_spaces();
    if (!text_.substr(at_).starts_with(token)) return false;
    const std::size_t end = at_ + token.size();
    const char next = end < text_.size() ? text_[end] : ' ';
    if (is_name_start(token[0]) && is_name_part(next)) return false;
    if ((token == "/" && next == '/') || ((token == "<" || token == ">") && next == '=')) return false;
    at_ = end;
    return true;
  }

  error refuse(std::string_view expected) const {
    const std::string found = at_ < text_.size() ? fmt::format("'{}'", text_[at_]) : "the end";
    return fail(errc::invalid_argument, fmt::format("the expression '{}' is wrong at column {}", text_, at_ + 1))
        .with_values(std::string(expected), found);
  }

  std::size_t add(node made) {
    nodes_.push_back(std::move(made));
    return nodes_.size() - 1;
  }

  step otherwise() {
    SHARDMESH_TRY(std::size_t left, logical_or());
    if (!take("??")) return left;
    if (++levels_ > most_levels) return refuse("fewer levels");
    SHARDMESH_TRY(const std::size_t right, otherwise());
    --levels_;
    return add({operation::otherwise, 0, {}, left, right});
  }

  step logical_or() {
    SHARDMESH_TRY(std::size_t left, logical_and());
    while (take("or")) {
      SHARDMESH_TRY(const std::size_t right, logical_and());
      left = add({operation::logical_or, 0, {}, left, right});
    }
    return left;
  }

  step logical_and() {
    SHARDMESH_TRY(std::size_t left, logical_not());
    while (take("and")) {
      SHARDMESH_TRY(const std::size_t right, logical_not());
      left = add({operation::logical_and, 0, {}, left, right});
    }
    return left;
  }

  step logical_not() {
    if (!take("not")) return comparison();
    if (++levels_ > most_levels) return refuse("fewer levels");
    SHARDMESH_TRY(const std::size_t operand, logical_not());
    --levels_;
    return add({operation::logical_not, 0, {}, operand, 0});
  }

  // a > b is parsed as b < a.
  step comparison() {
    struct symbol {
      std::string_view text;
      operation what;
      bool swaps;
    };
    static constexpr symbol symbols[] = {
        {"==", operation::equal, false},     {"!=", operation::unequal, false}, {"<=", operation::less_equal, false},
        {">=", operation::less_equal, true}, {"<", operation::less, false},     {">", operation::less, true},
    };
    SHARDMESH_TRY(const std::size_t left, sum());
    for (const symbol& one : symbols)
      if (take(one.text)) {
        SHARDMESH_TRY(const std::size_t right, sum());
        return one.swaps ? add({one.what, 0, {}, right, left}) : add({one.what, 0, {}, left, right});
      }
    return left;
  }

  step sum() {
    SHARDMESH_TRY(std::size_t left, product());
    while (true) {
      const bool adds = take("+");
      if (!adds && !take("-")) return left;
      SHARDMESH_TRY(const std::size_t right, product());
      left = add({adds ? operation::add : operation::subtract, 0, {}, left, right});
    }
  }

  step product() {
    SHARDMESH_TRY(std::size_t left, unary());
    while (true) {
      std::optional<operation> what;
      if (take("*"))
        what = operation::multiply;
      else if (take("//"))
        what = operation::divide_down;
      else if (take("/"))
        what = operation::divide;
      else if (take("%"))
        what = operation::remainder;
      if (!what) return left;
      SHARDMESH_TRY(const std::size_t right, unary());
      left = add({*what, 0, {}, left, right});
    }
  }

  step unary() {
    if (!take("-")) return atom();
    if (++levels_ > most_levels) return refuse("fewer levels");
    SHARDMESH_TRY(const std::size_t operand, unary());
    --levels_;
    return add({operation::negate, 0, {}, operand, 0});
  }

  step atom() {
    if (take("(")) {
      if (++levels_ > most_levels) return refuse("fewer levels");
      SHARDMESH_TRY(const std::size_t inner, otherwise());
      --levels_;
      if (!take(")")) return refuse("')'");
      return inner;
    }
    skip_spaces();
    const std::size_t begin = at_;
    if (at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])) != 0) {
      std::int64_t number = 0;
      const auto parsed = std::from_chars(text_.data() + at_, text_.data() + text_.size(), number);
      if (parsed.ec != std::errc{}) return refuse("a number that fits in 64 bits");
      at_ = static_cast<std::size_t>(parsed.ptr - text_.data());
      return add({operation::number, number, {}, 0, 0});
    }
    if (at_ < text_.size() && is_name_start(text_[at_])) {
      while (at_ < text_.size() && is_name_part(text_[at_])) ++at_;
      std::string name(text_.substr(begin, at_ - begin));
      if (at_ < text_.size() && text_[at_] == '[') return element(std::move(name));
      return add({operation::name, 0, std::move(name), 0, 0});
    }
    return refuse("a number, a name, or '('");
  }

  // "[index].rest" after the name of a list.
  step element(std::string name) {
    ++at_;
    if (++levels_ > most_levels) return refuse("fewer levels");
    SHARDMESH_TRY(const std::size_t index, otherwise());
    --levels_;
    if (!take("]")) return refuse("']'");
    name += "[]";
    if (at_ < text_.size() && text_[at_] == '.')
      while (at_ < text_.size() && is_name_part(text_[at_])) name.push_back(text_[at_++]);
    return add({operation::element, 0, std::move(name), index, 0});
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int levels_ = 0;
  std::vector<node> nodes_;
};

result<size_expression> size_expression::parse(std::string_view text) {
  if (text.size() > most_characters)
    return fail(errc::invalid_argument, "an expression is too long")
        .with_values(fmt::format("at most {} characters", most_characters), fmt::format("{}", text.size()));
  SHARDMESH_TRY(auto nodes, parser(text).run());
  size_expression made;
  made.text_ = text;
  made.nodes_ = std::move(nodes);
  return made;
}

}  // namespace shardmesh
