// SPDX-License-Identifier: Apache-2.0
// What the command line's files share: one `add_*` per command, the exit statuses, and the values that options take.
// Not here: what is printed and where (console.hpp, report.hpp).
#pragma once
#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>

namespace tool {

/// The contract of docs/design.md section 10.
enum exit_status : int { done = 0, problem = 1, wrong_usage = 2, not_completed = 3 };

/// Options that every command has.
struct common_options {
  int threads = 0;                // 0: all cores
  std::int64_t limit_factor = 1;  // times the limits of what reading an untrusted file may cost
  bool all_parts = false;         // a folder of several checkpoints is seen as one
  /// Of folders whose ranks saved without collectives: whose values are read, or those of all, as KEY@RANK.
  std::optional<std::int32_t> rank{};
  bool keys_at_ranks = false;
  std::stop_token cancel{};  // of commands that write: SIGINT and SIGTERM (see signals.hpp)
};

/// What a command does once its arguments are parsed; returns the exit status.
struct invocation {
  common_options common;
  int status = done;
};

/// One line about a command line that cannot be understood, naming the unknown command or option; returns
/// `wrong_usage`.
int usage_error(const CLI::App& app, const CLI::ParseError& problem);
/// A whole number of at least 0 that fits in 63 bits.
CLI::Validator whole_number();
/// A number of at least 0, not NaN.
CLI::Validator tolerance();
/// A path; an empty one, as of a shell's variable that is not set, is none.
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

}  // namespace tool
