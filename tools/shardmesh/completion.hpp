// SPDX-License-Identifier: Apache-2.0
// Shell completion and the manual page, written from one description of the command line (command_tree.hpp).
#pragma once
#include <string>

#include "command.hpp"
#include "command_tree.hpp"

namespace tool {

/// Scripts that make a shell complete commands, options, their values and paths.
std::string bash_completion(const described_tool& tool);
std::string zsh_completion(const described_tool& tool);
std::string fish_completion(const described_tool& tool);

/// shardmesh(1), as roff with the macros man.
std::string manual_page(const described_tool& tool);

/// The commands `completion SHELL` and `man`, which --help does not show: packages call them. Registered last.
void add_self_description(CLI::App& app, invocation& call);

}  // namespace tool
