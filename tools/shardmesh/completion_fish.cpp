// SPDX-License-Identifier: Apache-2.0
// Completion for fish: one `complete` per command and option, with the texts of --help, and a function that finds the
// command in the line.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <string_view>
#include <vector>

#include "completion.hpp"

namespace tool {
namespace {

// A fish function that tells whether the line has this command, or none. fish's own __fish_use_subcommand takes the
// value of an option before the command for the command, and its __fish_seen_subcommand_from takes a path with a
// command's name for that command.
std::string command_test(const std::vector<std::string>& commands) {
  return fmt::format(R"(function __shardmesh_command_is
  set -l found
  for word in (commandline -opc)[2..]
    if contains -- $word {}
      set found $word
      break
    end
  end
  test "$found" = "$argv"
end
)",
                     fmt::join(commands, " "));
}

std::string in_quotes(std::string_view text) {
  std::string made = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') made += '\\';
    made += c == '\n' ? ' ' : c;
  }
  return made + "'";
}

std::string line_of(const described_option& option, std::string_view condition) {
  std::string line = fmt::format("complete -c shardmesh{}", condition);
  for (const std::string& name : option.names)
    line += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  if (!option.choices.empty())
    line += fmt::format(" -f{} -a {}", option.takes_value() ? " -r" : "",
                        in_quotes(fmt::format("{}", fmt::join(option.choices, " "))));
  else if (option.takes_value())
    line += option.takes_path() ? " -r -F" : " -x";
  return line + " -d " + in_quotes(option.text) + "\n";
}

}  // namespace

std::string fish_completion(const described_tool& tool) {
  std::vector<std::string> commands;
  for (const described_command& command : tool.commands) commands.push_back(command.name);
  std::string text = "# fish completion of shardmesh: made by `shardmesh completion fish`\n";
  text += command_test(commands);
  text += "complete -c shardmesh -f\n";
  for (const described_option& option : tool.options) text += line_of(option, "");
  for (const described_command& command : tool.commands)
    text += fmt::format("complete -c shardmesh -n __shardmesh_command_is -a {} -d {}\n", command.name,
                        in_quotes(command.summary()));
  for (const described_command& command : tool.commands) {
    const std::string condition = fmt::format(" -n '__shardmesh_command_is {}'", command.name);
    // Not after the equals sign of an option, whose own values fish lists.
    if (command.takes_paths())
      text += fmt::format(
          "complete -c shardmesh -n '__shardmesh_command_is {}; and not string match -q -- \"-*=*\" (commandline -ct)' "
          "-F\n",
          command.name);
    for (const described_option& option : command.options)
      if (!option.is_positional())
        text += line_of(option, condition);
      else if (!option.choices.empty())
        text += fmt::format("complete -c shardmesh{} -a {}\n", condition,
                            in_quotes(fmt::format("{}", fmt::join(option.choices, " "))));
  }
  return text;
}

}  // namespace tool
