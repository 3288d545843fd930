// SPDX-License-Identifier: Apache-2.0
// The options of commands whose first argument is an action: `run`, `map`, and `delta`.
#pragma once
#include <string>
#include <vector>

import shardmesh;

namespace CLI {
class App;
}  // namespace CLI

namespace tool {

/// Options of a command that only some of its actions use.
struct action_options {
  std::vector<std::string> names;    // with their dashes
  std::vector<std::string> actions;  // that use them
};

/// Refuses the first given option that this action does not use. From then on, no hint offers such an option.
/// \param command  parsed; it has each option of the table
/// \errors errc::invalid_argument, naming the option and the actions that use it
shardmesh::result<void> check_action_options(const CLI::App& command, const std::string& action,
                                             const std::vector<action_options>& table);

}  // namespace tool
