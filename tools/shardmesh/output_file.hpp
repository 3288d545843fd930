// SPDX-License-Identifier: Apache-2.0
// `output_file`: the file that an option names (--svg, --html). Every such option opens its file here, so that none
// replaces a file without --force.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "command.hpp"

import shardmesh;
import shardmesh.storage;

namespace tool {

class output_file {
 public:
  /// Checks the destination before the work begins. `write` creates the whole file under its name; an existing device,
  /// socket, or pipe is written to.
  /// \errors errc::destination_exists without `force`; errc::io if the folder does not exist; those of staged_output
  static shardmesh::result<output_file> open(const std::string& path, bool force);
  /// The same for an optional option: empty for an empty path. `option` ("--svg") begins the messages about
  /// `checkpoints`: no output may become a part of a checkpoint that it shows, or replace one of its files.
  static shardmesh::result<std::optional<output_file>> open(std::string_view option, const std::string& path,
                                                            bool force,
                                                            const std::vector<std::string>& checkpoints = {});

  /// Writes everything and gives the file its name. Returns the exit status, and reports failures.
  int write(std::string_view text);

 private:
  explicit output_file(std::string path) : path_(std::move(path)) {}
  shardmesh::result<void> write_staged(std::string_view text);

  std::string path_;
  std::optional<shardmesh::staged_output> staged_;  // empty: written in place
};

/// Adds --force to a command whose `options` write files.
void add_force_option(CLI::App& command, bool& into, const std::string& options);

}  // namespace tool
