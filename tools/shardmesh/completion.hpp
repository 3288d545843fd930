// SPDX-License-Identifier: Apache-2.0
// Shell completion and the manual page, written from one description of the command line (command_tree.hpp).
#pragma once
#include <string>

#include "command.hpp"
#include "command_tree.hpp"

namespace tool {

/// Scripts with which a shell completes commands, options, their values, and paths.
std::string bash_completion(const described_tool& tool);
std::string zsh_completion(const described_tool& tool);
std::string fish_completion(const described_tool& tool);

/// shardmesh(1), in roff with the man macros.
std::string manual_page(const described_tool& tool);

/// Adds the commands `completion SHELL` and `man`, which packages call as well. They describe the commands that are
/// registered when they run.
void add_self_description(CLI::App& app, invocation& call);

}  // namespace tool
