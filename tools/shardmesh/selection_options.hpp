// SPDX-License-Identifier: Apache-2.0
// The selection options that inspect, diff, convert, and reshard share.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

import shardmesh;

namespace CLI {
class App;
}  // namespace CLI

namespace tool {

/// The options as the user typed them.
struct selection_arguments {
  std::vector<std::string> only, skip, rename, dtype;
  std::string strip_prefix;
  bool no_optimizer = false, optimizer_follows = false, allow_unused = false, allow_narrowing = false;

  /// Makes the library's options. Errors name the option.
  shardmesh::result<shardmesh::selection_options> compile() const;
};

/// Adds --only, --skip, --no-optimizer, --rename, --strip-prefix, --optimizer-follows, --dtype, --allow-narrowing, and
/// --allow-unused; they fill `into`.
void add_selection_options(CLI::App& command, selection_arguments& into);

/// Adds the options of every command that writes: --force, --no-sync, and --memory.
void add_saving_options(CLI::App& command, bool& overwrite, bool& durable, std::int64_t& memory_bytes);

/// Adds --dequantize, for commands that read elements.
void add_dequantize_option(CLI::App& command, bool& into);

/// Adds --json to a command that uses `is_json`; main looks for the flag before anything is parsed.
void add_json_option(CLI::App& command);

}  // namespace tool
