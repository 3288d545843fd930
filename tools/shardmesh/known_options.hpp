// SPDX-License-Identifier: Apache-2.0
// Which options the commands have, for hints: the library names an option wherever it helps, and a command offers only
// those that it has.
#pragma once
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace tool {

/// The options of one command, those of every command included, by their long names with dashes.
struct command_options {
  std::string command;
  std::set<std::string, std::less<>> names;
};

/// Sets the command that runs, and how to list the options of all commands, for when a hint names one. Without a
/// command, hints are left as they are.
void set_known_options(std::string running, std::function<std::vector<command_options>()> list);
/// Removes an option that the action of the running command does not use.
void forget_option(const std::string& name);

/// Returns a hint without the alternatives ("A; B", "A, or B", or "A? B") whose option the running command lacks. An
/// option of a command that the hint names before it, or of another program, stays. If no alternative is left, the hint
/// says which command has the options, or is empty.
std::string without_unknown_options(const std::string& hint);

}  // namespace tool
