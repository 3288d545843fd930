// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.mapping;

namespace shardmesh {
namespace {

// No real rule is longer, or has a tensor with more terms. `relate` recurses over the terms of a tensor.
constexpr std::size_t most_characters = 4096;
constexpr std::size_t most_terms = 4 * max_rank;

class rule_parser {
 public:
  explicit rule_parser(std::string_view text) : text_(text) {}

  result<index_rule> run() {
    index_rule made;
    SHARDMESH_TRY(made.left, side());
    if (!take("->")) return refuse("'->' between the sides");
    SHARDMESH_TRY(made.right, side());
    skip_spaces();
    if (at_ < text_.size()) return refuse("a dimension, ',', or the end");
    return made;
  }

 private:
  void skip_spaces() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) ++at_;
  }
  char next() {
    skip_spaces();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(std::string_view token) {
    skip_spaces();
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }

  error refuse(std::string_view expected) {
    skip_spaces();
    return fail(errc::invalid_argument, fmt::format("the rule '{}' is wrong at column {}", text_, at_ + 1))
        .with_values(std::string(expected), at_ < text_.size() ? fmt::format("'{}'", text_[at_]) : "the end");
  }

  static bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

  result<std::string> word(std::string_view expected) {
    if (!is_word(next())) return refuse(expected);
    const std::size_t begin = at_;
    while (at_ < text_.size() && is_word(text_[at_])) ++at_;
    return std::string(text_.substr(begin, at_ - begin));
  }

  result<index_factor> factor() {
    SHARDMESH_TRY(std::string name, word("the name of a factor"));
    const bool is_number = std::isdigit(static_cast<unsigned char>(name[0])) != 0;
    if (is_number && name != "1") return refuse("a name: declare numbers in [sizes]");
    if (name == "_") return refuse("the name of a factor");
    const bool repeats = at_ < text_.size() && text_[at_] == '*' && ++at_ > 0;
    return index_factor{std::move(name), repeats};
  }

  result<std::vector<index_segment>> sum() {
    std::vector<index_segment> made;
    do {
      SHARDMESH_TRY(std::string name, word("the name of a part, or '_'"));
      index_segment one;
      if (name != "_") one.part = std::move(name);
      if (take(":")) {
        if (take("(")) {
          while (!take(")")) {
            SHARDMESH_TRY(index_factor inner, factor());
            one.factors.push_back(std::move(inner));
          }
        } else {
          SHARDMESH_TRY(index_factor inner, factor());
          one.factors.push_back(std::move(inner));
        }
      }
      made.push_back(std::move(one));
    } while (take("|"));
    if (!take("]")) return refuse("'|' or ']'");
    return made;
  }

  result<index_term> term() {
    index_term made;
    if (take("[")) {
      SHARDMESH_TRY(made.segments, sum());
    } else {
      SHARDMESH_TRY(made.factor, factor());
    }
    return made;
  }

  result<index_tensor> tensor() {
    index_tensor made;
    SHARDMESH_TRY(made.alias, word("the name of a tensor"));
    if (made.alias == "_") return refuse("the name of a tensor");
    if (!take(":")) return refuse("':' after the name of a tensor");
    std::size_t terms = 0;
    while (true) {
      const char c = next();
      if (c == '(') {
        ++at_;
        std::vector<index_term> dimension;
        while (!take(")")) {
          SHARDMESH_TRY(index_term one, term());
          dimension.push_back(std::move(one));
          if (++terms > most_terms) return refuse(fmt::format("at most {} factors", most_terms));
        }
        made.dimensions.push_back(std::move(dimension));
      } else if (c == '[' || is_word(c)) {
        SHARDMESH_TRY(index_term one, term());
        made.dimensions.push_back({std::move(one)});
      } else {
        break;
      }
      if (made.dimensions.size() > max_rank) return refuse(fmt::format("at most {} dimensions", max_rank));
    }
    return made;
  }

  result<std::vector<index_tensor>> side() {
    std::vector<index_tensor> made;
    do {
      SHARDMESH_TRY(index_tensor one, tensor());
      for (const index_tensor& other : made)
        if (other.alias == one.alias) return refuse(fmt::format("another name than '{}', which is taken", one.alias));
      made.push_back(std::move(one));
    } while (take(","));
    return made;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

std::string spelled(const std::vector<index_factor>& factors) {
  std::vector<std::string> names;
  for (const index_factor& one : factors) names.push_back(one.name + (one.repeats ? "*" : ""));
  return fmt::format("{}", fmt::join(names, " "));
}

std::string spelled(const index_term& term) {
  if (term.segments.empty()) return spelled(std::vector<index_factor>{term.factor});
  std::vector<std::string> parts;
  for (const index_segment& one : term.segments) {
    const std::string part = one.part.empty() ? "_" : one.part;
    if (one.factors.empty())
      parts.push_back(part);
    else if (one.factors.size() == 1)
      parts.push_back(fmt::format("{}:{}", part, spelled(one.factors)));
    else
      parts.push_back(fmt::format("{}:({})", part, spelled(one.factors)));
  }
  return fmt::format("[{}]", fmt::join(parts, " | "));
}

std::string spelled(const std::vector<index_tensor>& side) {
  std::vector<std::string> tensors;
  for (const index_tensor& tensor : side) {
    std::string text = tensor.alias + ":";
    for (const std::vector<index_term>& dimension : tensor.dimensions) {
      std::vector<std::string> terms;
      for (const index_term& term : dimension) terms.push_back(spelled(term));
      const bool is_one = terms.size() == 1;
      text += fmt::format(" {}{}{}", is_one ? "" : "(", fmt::join(terms, " "), is_one ? "" : ")");
    }
    tensors.push_back(std::move(text));
  }
  return fmt::format("{}", fmt::join(tensors, ", "));
}

}  // namespace

result<index_rule> parse_index_rule(std::string_view text) {
  if (text.find_first_not_of(" \t\n") == std::string_view::npos) return index_rule{};
  if (text.size() > most_characters)
    return fail(errc::invalid_argument, "an index expression is too long")
        .with_values(fmt::format("at most {} characters", most_characters), fmt::format("{}", text.size()));
  return rule_parser(text).run();
}

std::string to_string(const index_rule& rule) {
  if (rule.is_rename()) return "";
  return fmt::format("{} -> {}", spelled(rule.left), spelled(rule.right));
}

}  // namespace shardmesh
