// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>

#include "action_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "counted.hpp"
#include "known_options.hpp"

import shardmesh;
import shardmesh.core;

namespace tool {

using namespace shardmesh;

result<void> check_action_options(const CLI::App& command, const std::string& action,
                                  const std::vector<action_options>& table) {
  for (const action_options& options : table) {
    if (std::find(options.actions.begin(), options.actions.end(), action) != options.actions.end()) continue;
    for (const std::string& name : options.names) {
      forget_option(name);
      if (command.get_option(name)->count() == 0) continue;
      std::vector<std::string> users;
      for (const std::string& user : options.actions) users.push_back(fmt::format("'{} {}'", command.get_name(), user));
      return fail(errc::invalid_argument, fmt::format("{} is an option of {} only", name, enumerated(users)))
          .with_hint("leave it out");
    }
  }
  return {};
}

}  // namespace tool
