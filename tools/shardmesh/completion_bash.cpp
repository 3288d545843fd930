// SPDX-License-Identifier: Apache-2.0
// Completion for bash: one function that does not need the package bash-completion.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <string_view>
#include <vector>

#include "completion.hpp"

namespace tool {
namespace {

// bash splits --to=dcp into three words. `option` is the text before the value: "--to", or "--dedup=" with an equals
// sign.
constexpr std::string_view head = R"(# bash completion of shardmesh: made by `shardmesh completion bash`
_shardmesh() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command='' option words='' values='' i
  COMPREPLY=()
  option=$before
  if [[ $word == = ]]; then word='' option=$before=
  elif [[ $before == = ]]; then option=${COMP_WORDS[COMP_CWORD-2]}=; fi
)";

constexpr std::string_view tail = R"(  [[ $word == -* ]] || words=$values
  [[ -n $command || $word == -* ]] || words=$commands
  if [[ -n $words ]]; then COMPREPLY=($(compgen -W "$words" -- "$word")); return; fi
  [[ $word == -* || -z $takes_paths ]] || _shardmesh_paths "$word"
}
_shardmesh_paths() {
  compopt -o filenames 2>/dev/null
  mapfile -t COMPREPLY < <(compgen -f -- "$1")
}
complete -F _shardmesh shardmesh
)";

// case $command:$option in ... : the possible values of an option. A pattern of the tool's own options fits any
// command.
std::string values_of(std::string_view command, const std::vector<described_option>& options) {
  std::string text;
  for (const described_option& option : options) {
    if (option.is_positional() || option.value.empty()) continue;
    std::vector<std::string> patterns;
    for (const std::string& name : option.names) {
      if (option.takes_value()) patterns.push_back(fmt::format("{}:{}", command, name));
      patterns.push_back(fmt::format("{}:{}=", command, name));
    }
    const std::string answer = !option.choices.empty() ? fmt::format("COMPREPLY=($(compgen -W '{}' -- \"$word\")); ",
                                                                     fmt::join(option.choices, " "))
                               : option.takes_path()   ? "_shardmesh_paths \"$word\"; "
                                                       : "";
    text += fmt::format("    {}) {}return ;;\n", fmt::join(patterns, "|"), answer);
  }
  return text;
}

std::string names_of(const std::vector<described_option>& options) {
  std::vector<std::string> names;
  for (const described_option& option : options) names.insert(names.end(), option.names.begin(), option.names.end());
  return fmt::format("{}", fmt::join(names, " "));
}

// The values of a positional argument that accepts only certain ones.
std::string choices_of(const described_command& command) {
  for (const described_option& option : command.options)
    if (option.is_positional() && !option.choices.empty())
      return fmt::format(" values='{}'", fmt::join(option.choices, " "));
  return {};
}

}  // namespace

std::string bash_completion(const described_tool& tool) {
  std::vector<std::string> commands;
  for (const described_command& command : tool.commands) commands.push_back(command.name);
  std::string text(head);
  text += fmt::format("  local commands='{}' takes_paths=''\n", fmt::join(commands, " "));
  text += "  for ((i = 1; i < COMP_CWORD; ++i)); do\n";
  text += fmt::format("    case ${{COMP_WORDS[i]}} in {}) command=${{COMP_WORDS[i]}}; break ;; esac\n  done\n",
                      fmt::join(commands, "|"));
  text += "  case $command:$option in\n";
  for (const described_command& command : tool.commands) text += values_of(command.name, command.options);
  text += values_of("*", tool.options) + "  esac\n  case $command in\n";
  text += fmt::format("    '') words='{}' ;;\n", names_of(tool.options));
  for (const described_command& command : tool.commands)
    text += fmt::format("    {}) words='{} {}'{}{} ;;\n", command.name, names_of(command.options),
                        names_of(shared_options(tool, command)), choices_of(command),
                        command.takes_paths() ? " takes_paths=1" : "");
  return text + "  esac\n" + std::string(tail);
}

}  // namespace tool
