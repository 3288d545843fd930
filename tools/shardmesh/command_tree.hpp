// SPDX-License-Identifier: Apache-2.0
// The description of the command line as plain values. It is read from the tree of commands that also parses and prints
// --help, so completion and the manual page always agree with it. Writing them is in completion_*.cpp and manual.cpp.
#pragma once
#include <string>
#include <vector>

namespace CLI {
class App;
}  // namespace CLI

namespace tool {

/// An option, a flag, or (without names) a positional argument.
struct described_option {
  std::vector<std::string> names;    // with their dashes, the short ones first: "-h", "--help"
  std::string value;                 // the name of its value, "FILE"; empty: a flag
  std::vector<std::string> choices;  // the only allowed values, if any
  std::string fallback;              // the default, if help states one
  std::string text, group;
  bool is_optional_value = false;  // a flag that may have a value after "=": --dedup or --dedup=equal
  bool is_repeatable = false;
  bool is_required = false;

  bool is_positional() const { return names.empty(); }
  bool takes_value() const { return !value.empty() && !is_optional_value; }
  /// Whether its value is a path: a checkpoint, a folder, or a file.
  bool takes_path() const;
  /// The text with the facts that the parser knows: "(one of: tied, equal; default: tied; repeatable; required)".
  std::string full_text() const;
};

struct described_command {
  std::string name, text;
  std::vector<described_option> options;  // positional arguments included, in order
  std::vector<std::string> examples;      // command lines

  bool takes_paths() const;
  /// The first sentence of the text, without its full stop.
  std::string summary() const;
};

struct described_tool {
  std::string name, version, text;
  std::vector<described_option> options;  // of every command, before or after its name
  std::vector<described_command> commands;
};

/// The options of every command that a command does not list itself (it does list --help).
std::vector<described_option> shared_options(const described_tool& tool, const described_command& command);

/// Describes one command, or the tool itself without its commands. The examples are the lines of its footer.
described_command describe_command(const CLI::App& command);

/// Describes every command and option that --help shows.
described_tool describe(const CLI::App& app);

}  // namespace tool
