// SPDX-License-Identifier: Apache-2.0
#include "known_options.hpp"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tool {
namespace {

struct known_options {
  std::string running;  // empty until it is known
  std::function<std::vector<command_options>()> list;
  std::vector<std::string> forgotten;
  std::vector<command_options> all;  // the result of `list`, once it is needed
};

known_options& known() {
  static known_options options;
  return options;
}

// One alternative of a hint, with the separator before it.
struct alternative {
  std::string_view separator, text;
};

std::vector<alternative> alternatives_of(std::string_view hint) {
  constexpr std::string_view separators[] = {"; ", ", or ", "? "};
  std::vector<alternative> made;
  for (std::string_view before;;) {
    std::size_t end = hint.size();
    std::string_view after;
    for (const std::string_view separator : separators)
      if (const std::size_t at = hint.find(separator); at < end) {
        end = at;
        after = separator;
      }
    if (after.starts_with('?')) {  // the mark belongs to the question: "did you mean w? pass ..."
      ++end;
      after.remove_prefix(1);
    }
    made.push_back({before, hint.substr(0, end)});
    if (after.empty()) return made;
    hint.remove_prefix(end + after.size());
    before = after;
  }
}

bool is_of_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_';
}

bool names_word(std::string_view text, std::string_view word) {
  for (std::size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    if ((at == 0 || !is_of_word(text[at - 1])) && (end == text.size() || !is_of_word(text[end]))) return true;
  }
  return false;
}

std::vector<std::string_view> options_in(std::string_view text) {
  std::vector<std::string_view> found;
  for (std::size_t at = text.find("--"); at != std::string_view::npos; at = text.find("--", at)) {
    std::size_t end = at;
    while (end < text.size() && is_of_word(text[end])) ++end;
    if (at == 0 || !is_of_word(text[at - 1])) found.push_back(text.substr(at, end - at));
    at = end;
  }
  return found;
}

// Whether the running command lacks an option of some command, unless the hint names that command in `before`.
bool is_lacking(std::string_view option, std::string_view before) {
  known_options& options = known();
  if (options.all.empty()) options.all = options.list();
  bool is_ours = false;
  for (const command_options& one : options.all) {
    if (!one.names.contains(option)) continue;
    const bool is_running = one.command == options.running;
    if (is_running ? std::ranges::find(options.forgotten, option) == options.forgotten.end()
                   : names_word(before, one.command))
      return false;
    is_ours = true;
  }
  return is_ours;
}

}  // namespace

void set_known_options(std::string running, std::function<std::vector<command_options>()> list) {
  known() = known_options{std::move(running), std::move(list), {}, {}};
}

void forget_option(const std::string& name) {
  known().forgotten.push_back(name);
}

std::string without_unknown_options(const std::string& hint) {
  if (hint.empty() || known().running.empty()) return hint;
  const std::string_view whole = hint;
  std::string kept;
  bool is_about_ranks = false;
  for (const alternative& one : alternatives_of(whole)) {
    const auto end = static_cast<std::size_t>(one.text.data() - whole.data()) + one.text.size();
    bool lacks = false;
    for (const std::string_view option : options_in(one.text)) {
      if (!is_lacking(option, whole.substr(0, end))) continue;
      lacks = true;
      is_about_ranks = is_about_ranks || option == "--rank" || option == "--keys-at-ranks";
    }
    if (lacks) continue;
    if (!kept.empty()) kept += one.separator;
    kept += one.text;
  }
  if (kept.empty() && is_about_ranks)
    return "convert the checkpoint with --rank N or --keys-at-ranks first, and pass the result";
  return kept;
}

}  // namespace tool
