// SPDX-License-Identifier: Apache-2.0
#include "help.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "command_tree.hpp"

namespace tool {
namespace {

constexpr std::size_t narrowest = 40, widest = 120, usual = 80;

// The value of COLUMNS, or 0 if it is not a number.
std::size_t columns_variable() {
  const char* const value = std::getenv("COLUMNS");
  if (value == nullptr) return 0;
  const std::string_view text = value;
  std::size_t columns = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), columns);
  return code == std::errc{} && end == text.data() + text.size() ? columns : 0;
}

// The width of the terminal, or 0 if stdout is not one.
std::size_t columns_of_terminal() {
  winsize size{};
  if (::isatty(STDOUT_FILENO) != 1 || ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return 0;
  return size.ws_col;
}

std::string lines_of(std::string_view text, std::size_t width) {
  return fmt::format("{}\n", fmt::join(wrapped(text, width), "\n"));
}

// "  --to FORMAT               The format of DST". The text begins on the next line if the heading fills its column.
std::string entry(const std::string& heading, std::string_view text, std::size_t width) {
  const std::size_t column = std::min<std::size_t>(28, width * 35 / 100);
  std::string made, line = "  " + heading;
  if (line.size() + 2 > column) {
    made = line + "\n";
    line.clear();
  }
  for (const std::string& part : wrapped(text, width - column)) {
    line.resize(column, ' ');
    made += line + part + "\n";
    line.clear();
  }
  return line.empty() ? made : made + line + "\n";
}

std::string heading_of(const described_option& option) {
  if (option.is_positional()) return option.value;
  std::string made = fmt::format("{}", fmt::join(option.names, ", "));
  if (option.is_optional_value)
    made += "[=" + option.value + "]";
  else if (!option.value.empty())
    made += " " + option.value;
  return made;
}

// "Usage: shardmesh run [OPTIONS] ACTION DIR [STEP]": the required options, then the positional arguments, in order.
std::string usage(const std::string& name, const described_command& command, bool is_tool, std::size_t width) {
  std::string required, positional;
  for (const described_option& option : command.options) {
    if (option.is_positional())
      positional += option.is_required ? " " + option.value : " [" + option.value + "]";
    else if (option.is_required)
      required += " " + heading_of(option);
  }
  const std::string text = "Usage: " + name + required + " [OPTIONS]" + positional + (is_tool ? " COMMAND ..." : "");
  std::string made;
  for (const std::string& line : wrapped(text, width - 4)) made += (made.empty() ? "" : "    ") + line + "\n";
  return made;
}

// The positional arguments, then the groups of options in the order of their first option.
std::string groups_of(const std::vector<described_option>& options, std::size_t width) {
  std::string arguments;
  std::vector<std::string> groups;
  for (const described_option& option : options) {
    if (option.is_positional())
      arguments += entry(heading_of(option), option.full_text(), width);
    else if (std::find(groups.begin(), groups.end(), option.group) == groups.end())
      groups.push_back(option.group);
  }
  std::string made = arguments.empty() ? "" : "\nArguments:\n" + arguments;
  for (const std::string& group : groups) {
    made += "\n" + lines_of(group + ":", width);
    for (const described_option& option : options)
      if (option.group == group && !option.is_positional())
        made += entry(heading_of(option), option.full_text(), width);
  }
  return made;
}

std::string commands_of(const described_tool& tool, std::size_t width) {
  std::string made = "\nCommands:\n";
  for (const described_command& command : tool.commands) made += entry(command.name, command.summary(), width);
  return made + "\n" +
         lines_of(fmt::format("'{} COMMAND --help' describes a command and its options.", tool.name), width);
}

// Names the options of every command, which the tool's own help describes.
std::string shared_line(const described_tool& tool, const described_command& command, std::size_t width) {
  std::vector<std::string> headings;
  for (const described_option& option : shared_options(tool, command))
    if (option.takes_value()) headings.push_back(heading_of(option));
  return "\n" +
         lines_of(fmt::format("Options of every command: {} (see '{} --help').", fmt::join(headings, ", "), tool.name),
                  width);
}

// Examples are not wrapped: they are copied.
std::string examples_of(const std::vector<std::string>& examples) {
  return examples.empty() ? "" : fmt::format("\nExamples:\n  {}\n", fmt::join(examples, "\n  "));
}

}  // namespace

std::size_t help_width() {
  const std::size_t set = columns_variable(), found = set > 0 ? set : columns_of_terminal();
  return std::clamp(found > 0 ? found : usual, narrowest, widest);
}

std::vector<std::string> wrapped(std::string_view text, std::size_t width) {
  constexpr std::string_view spaces = " \n";
  std::vector<std::string> lines;
  std::string line;
  while (true) {
    text.remove_prefix(std::min(text.find_first_not_of(spaces), text.size()));
    if (text.empty()) break;
    const std::string_view word = text.substr(0, std::min(text.find_first_of(spaces), width));
    text.remove_prefix(word.size());
    if (!line.empty() && line.size() + 1 + word.size() > width) {
      lines.push_back(line);
      line.clear();
    }
    if (!line.empty()) line += ' ';
    line += word;
  }
  if (!line.empty()) lines.push_back(line);
  return lines;
}

std::string help_formatter::make_help(const CLI::App* app, std::string name, CLI::AppFormatMode) const {
  const std::size_t width = help_width();
  const bool is_tool = app->get_parent() == nullptr;
  const described_command command = describe_command(*app);
  const described_tool tool = describe(is_tool ? *app : *app->get_parent());
  std::string page = lines_of(command.text + ".", width) + "\n" + usage(name, command, is_tool, width);
  page += groups_of(command.options, width);
  page += is_tool ? commands_of(tool, width) : shared_line(tool, command, width);
  return page + examples_of(command.examples);
}

}  // namespace tool
