// SPDX-License-Identifier: Apache-2.0
// The pages of --help. They are written from the description of the command line (command_tree.hpp) that completion and
// the manual page use too. CLI11's own formatter knows no width, and prints types and checks ("INT in [0 - 4096]").
#pragma once
#include <CLI/CLI.hpp>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tool {

/// Returns the number of columns for help: that of COLUMNS if it is set, else the terminal's, else 80. The result is
/// at least 40 and at most 120.
std::size_t help_width();

/// Breaks text into lines of at most `width` bytes: at spaces and line breaks, and inside words that are longer.
std::vector<std::string> wrapped(std::string_view text, std::size_t width);

/// Prints the help of the tool or of one command: its purpose, usage, arguments, options, commands, and examples.
class help_formatter final : public CLI::FormatterBase {
 public:
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override;
};

}  // namespace tool
