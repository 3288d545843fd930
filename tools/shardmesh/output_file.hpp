// SPDX-License-Identifier: Apache-2.0
// output_file: the file that an option names (--svg, --html). Every such option opens its file here, so that none
// replaces a file without --force.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "command.hpp"

import shardmesh;
import shardmesh.storage;

namespace tool {

class output_file {
 public:
  /// Looks at the destination before the work begins. A file appears whole, under its name, in `write`; a device, a
  /// socket or a pipe that is there is written to.
  /// \errors errc::destination_exists without `force`; errc::io when there is no such folder; those of staged_output
  static shardmesh::result<output_file> open(const std::string& path, bool force);
  /// The same for an option that may not be given: nothing for an empty path. `option` ("--svg") begins the messages
  /// about `checkpoint`: no output becomes a part of the checkpoint that it shows, or takes the place of a file of it.
  static shardmesh::result<std::optional<output_file>> open(std::string_view option, const std::string& path,
                                                            bool force, const std::string& checkpoint = {});

  /// Writes everything and gives the file its name. Returns the exit status; what fails is said.
  int write(std::string_view text);

 private:
  explicit output_file(std::string path) : path_(std::move(path)) {}
  shardmesh::result<void> write_staged(std::string_view text);

  std::string path_;
  std::optional<shardmesh::staged_output> staged_;  // nothing: written in place
};

/// Adds --force to a command whose `options` write files.
void add_force_option(CLI::App& command, bool& into, const std::string& options);

}  // namespace tool
