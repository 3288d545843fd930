// SPDX-License-Identifier: Apache-2.0
// The manual page, in roff with the macros of man(7).
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "completion.hpp"

namespace tool {
namespace {

// Escapes text between macros, including a line that would begin a macro.
std::string roff(std::string_view text) {
  std::string made;
  for (const char c : text) {
    const bool begins_line = made.empty() || made.back() == '\n';
    if (begins_line && (c == '.' || c == '\'')) made += "\\&";
    if (c == '\\')
      made += "\\e";
    else if (c == '-')
      made += "\\-";
    else if (c == '\'')
      made += "\\(aq";
    else
      made += c;
  }
  return made;
}

std::string synopsis_of(const described_command& command) {
  std::string text = fmt::format(".B shardmesh {}\n", roff(command.name));
  for (const described_option& option : command.options)
    if (!option.is_positional() && option.is_required)
      text += fmt::format(".B {}\n.I {}\n", roff(option.names.back()), roff(option.value));
  text += "[options]\n";
  for (const described_option& option : command.options)
    if (option.is_positional())
      text += fmt::format(".I {}\n", roff(option.is_required ? option.value : "[" + option.value + "]"));
  return text;
}

std::string entry_of(const described_option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.names) names.push_back("\\fB" + roff(name) + "\\fR");
  std::string tag = fmt::format("{}", fmt::join(names, ", "));
  const std::string value = "\\fI" + roff(option.value) + "\\fR";
  if (option.is_positional())
    tag = value;
  else if (option.is_optional_value)
    tag += "[=" + value + "]";
  else if (!option.value.empty())
    tag += " " + value;
  return fmt::format(".TP\n{}\n{}\n", tag, roff(option.full_text()));
}

// Writes positional arguments first, then the groups of options in the order of help.
std::string entries_of(const std::vector<described_option>& options) {
  std::string text;
  std::vector<std::string> groups;
  for (const described_option& option : options) {
    if (option.is_positional()) text += entry_of(option);
    if (!option.is_positional() && std::find(groups.begin(), groups.end(), option.group) == groups.end())
      groups.push_back(option.group);
  }
  for (const std::string& group : groups) {
    if (group != "Options") text += fmt::format(".PP\n{}:\n", roff(group));
    for (const described_option& option : options)
      if (option.group == group && !option.is_positional()) text += entry_of(option);
  }
  return text;
}

// Lines that are copied, so they are neither filled nor hyphenated.
std::string examples_of(const std::vector<std::string>& examples) {
  std::string text;
  for (const std::string& example : examples) text += roff(example) + "\n";
  return text.empty() ? text : fmt::format(".PP\nExamples:\n.PP\n.nf\n{}.fi\n", text);
}

constexpr std::string_view statuses = R"(.SH EXIT STATUS
.TP
.B 0
Done.
.TP
.B 1
The data has a problem, or two checkpoints differ.
.TP
.B 2
Wrong usage.
.TP
.B 3
Not completed: the operating system refused, there was no room or no memory, or a signal ended it.
)";

}  // namespace

std::string manual_page(const described_tool& tool) {
  std::string text = fmt::format(
      ".\\\" Made by: shardmesh man\n.TH SHARDMESH 1 \"\" \"shardmesh {}\" \"User Commands\"\n.ad l\n", tool.version);
  text += fmt::format(".SH NAME\nshardmesh \\- {}\n.SH SYNOPSIS\n", roff(tool.text.substr(tool.text.find(": ") + 2)));
  for (const described_command& command : tool.commands)
    text += synopsis_of(command) + (&command == &tool.commands.back() ? "" : ".br\n");
  text += ".SH OPTIONS\nOf every command, before or after its name.\n" + entries_of(tool.options) + ".SH COMMANDS\n";
  for (const described_command& command : tool.commands)
    text += fmt::format(".SS {}\n{}\n{}{}", roff(command.name), roff(command.text + "."), entries_of(command.options),
                        examples_of(command.examples));
  return text + std::string(statuses);
}

}  // namespace tool
