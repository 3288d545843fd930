// SPDX-License-Identifier: Apache-2.0
// The selection options that inspect, diff, convert and reshard share.
#pragma once
#include <CLI/CLI.hpp>

import shardmesh;

namespace tool {

/// Adds --only, --skip, --no-optimizer, --rename, --strip-prefix, --dtype and --allow-unused; they fill `into`.
void add_selection_options(CLI::App& command, shardmesh::selection_options& into);

/// The options of every command that writes: --memory, --force. They fill `into`.
void add_saving_options(CLI::App& command, shardmesh::save_options& into);

/// --json for a command that looks at `is_json`: main sees the flag before anything is parsed.
void add_json_option(CLI::App& command);

}  // namespace tool
