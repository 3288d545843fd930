// SPDX-License-Identifier: Apache-2.0
// Declarations that the command line's files share: one `add_*` per command, exit statuses, and the values that options
// take. Output is in console.hpp and report.hpp.
#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

// CLI11's headers take seconds in each file: only files that add or read options include them.
namespace CLI {
class App;
class ParseError;
class Validator;
}  // namespace CLI

namespace tool {

/// The exit statuses that docs/commands.md promises.
enum exit_status : int { done = 0, problem = 1, wrong_usage = 2, not_completed = 3 };

/// Options that every command has.
struct common_options {
  int threads = 0;                // 0: all cores
  std::int64_t limit_factor = 1;  // multiplies the limits on the cost of reading an untrusted file
  bool all_parts = false;         // shows a folder of several checkpoints as one
  /// For folders whose ranks saved without collectives: the rank whose values are read, or all ranks' values as
  /// KEY@RANK.
  std::optional<std::int32_t> rank{};
  bool keys_at_ranks = false;
  std::optional<std::chrono::steady_clock::time_point> end{};  // of the command: --within
  std::stop_token cancel{};  // for commands that write: SIGINT and SIGTERM (see signals.hpp)
};

/// The options and the result of one command: the command runs once its arguments are parsed.
struct invocation {
  common_options common;
  int status = done;
};

/// Prints one line about a command line that cannot be parsed, naming the unknown command or option; returns
/// `wrong_usage`.
int usage_error(const CLI::App& app, const CLI::ParseError& problem);
/// Accepts a decimal whole number in these bounds, and removes its leading zeros, with which CLI11 reads an octal one.
/// Pass it to `transform`: `check` would drop the change.
CLI::Validator whole_number(std::int64_t least = 0, std::int64_t most = INT64_MAX);
/// Accepts one of these values, which completion and help list. The error for another one suggests the nearest.
CLI::Validator one_of(const std::vector<std::string>& values);
/// Accepts a number of at least 0, not NaN.
CLI::Validator tolerance();
/// Accepts a path. An empty one, such as from an unset shell variable, is refused.
CLI::Validator some_path();

/// Registers one command; its callback sets `call.status`.
void add_inspect(CLI::App& app, invocation& call);
void add_verify(CLI::App& app, invocation& call);
void add_diff(CLI::App& app, invocation& call);
void add_convert(CLI::App& app, invocation& call);
void add_reshard(CLI::App& app, invocation& call);
void add_layout(CLI::App& app, invocation& call);
void add_plan(CLI::App& app, invocation& call);
void add_check_shards(CLI::App& app, invocation& call);
void add_clean(CLI::App& app, invocation& call);
void add_map(CLI::App& app, invocation& call);
void add_run(CLI::App& app, invocation& call);
void add_delta(CLI::App& app, invocation& call);
void add_devices(CLI::App& app, invocation& call);

}  // namespace tool
