// SPDX-License-Identifier: Apache-2.0
// Completion for zsh: specifications of _arguments, one list per command, with the texts of --help.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <string_view>
#include <vector>

#include "completion.hpp"

namespace tool {
namespace {

// Escapes text within single quotes, where brackets and colons separate the parts of a specification.
std::string escaped_text(std::string_view text) {
  std::string made;
  for (const char c : text) {
    if (c == '\'') {
      made += "'\\''";
      continue;
    }
    if (std::string_view("\\[]:$`").find(c) != std::string_view::npos) made += '\\';
    made += c == '\n' ? ' ' : c;
  }
  return made;
}

std::string action_of(const described_option& option) {
  if (!option.choices.empty()) return fmt::format("({})", fmt::join(option.choices, " "));
  return option.takes_path() ? "_files" : " ";
}

// '--to=[Format of DST]:FORMAT:(dcp hf)'; one line per name.
std::string lines_of(const described_option& option, std::string_view indent) {
  if (option.is_positional())
    return fmt::format("{}':{}:{}' \\\n", indent, escaped_text(option.value), action_of(option));
  std::string text;
  for (const std::string& name : option.names) {
    const std::string_view attached = option.value.empty()       ? ""
                                      : option.is_optional_value ? "=-"
                                      : name.starts_with("--")   ? "="
                                                                 : "+";
    text += fmt::format("{}'{}{}{}[{}]", indent, option.is_repeatable ? "*" : "", name, attached,
                        escaped_text(option.text));
    if (!option.value.empty())
      text +=
          fmt::format("{}{}:{}", option.is_optional_value ? "::" : ":", escaped_text(option.value), action_of(option));
    text += "' \\\n";
  }
  return text;
}

}  // namespace

std::string zsh_completion(const described_tool& tool) {
  std::string options;
  for (const described_option& option : tool.options) options += lines_of(option, "    ");
  std::string text = "#compdef shardmesh\n# zsh completion of shardmesh: made by `shardmesh completion zsh`\n";
  text +=
      "_shardmesh() {\n  local context state state_descr line\n  typeset -A opt_args\n  local -a commands\n  "
      "commands=(\n";
  for (const described_command& command : tool.commands)
    text += fmt::format("    '{}:{}'\n", command.name, escaped_text(command.summary()));
  text += "  )\n  _arguments -C \\\n" + options + "    '1:command:->command' \\\n    '*::argument:->argument'\n";
  text += "  case $state in\n  command) _describe command commands ;;\n  argument)\n    case $words[1] in\n";
  for (const described_command& command : tool.commands) {
    text += fmt::format("    {})\n      _arguments \\\n", command.name);
    for (const described_option& option : command.options) text += lines_of(option, "    ");
    for (const described_option& option : shared_options(tool, command)) text += lines_of(option, "    ");
    text += "        && return ;;\n";
  }
  text += "    esac ;;\n  esac\n}\n";
  // If fpath loads the file, it is the function's body; if it is sourced, it must register the function.
  return text + "if [[ $funcstack[1] == _shardmesh ]]; then _shardmesh \"$@\"; else compdef _shardmesh shardmesh; fi\n";
}

}  // namespace tool
