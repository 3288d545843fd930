// SPDX-License-Identifier: Apache-2.0
// What the command line says of itself, as plain values: read from the tree of commands that also parses and prints
// --help, so that completion and the manual page cannot say anything else. Not here: how they are written.
#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace tool {

/// An option, a flag, or (without names) a positional argument.
struct described_option {
  std::vector<std::string> names;    // with their dashes, the short ones first: "-h", "--help"
  std::string value;                 // what its value is called, "FILE"; empty: a flag
  std::vector<std::string> choices;  // when only these are allowed
  std::string fallback;              // the default, where help says one
  std::string text, group;
  bool is_optional_value = false;  // a flag that may be given a value with "=": --dedup or --dedup=equal
  bool is_repeatable = false;
  bool is_required = false;

  bool is_positional() const { return names.empty(); }
  bool takes_value() const { return !value.empty() && !is_optional_value; }
  /// Its value is a path: a checkpoint, a folder, a file.
  bool takes_path() const;
};

struct described_command {
  std::string name, text;
  std::vector<described_option> options;  // positional arguments too, in order

  bool takes_paths() const;
};

struct described_tool {
  std::string name, version, text;
  std::vector<described_option> options;  // of every command, before or after its name
  std::vector<described_command> commands;
};

/// The options of every command that a command does not list as its own (it does --help).
std::vector<described_option> shared_options(const described_tool& tool, const described_command& command);

/// Every command and option that --help shows.
described_tool describe(const CLI::App& app);

}  // namespace tool
