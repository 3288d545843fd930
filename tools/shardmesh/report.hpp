// SPDX-License-Identifier: Apache-2.0
// The commands' reports: one line per problem on stderr, one JSON document or plain text on stdout, and a progress bar
// on terminals.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "json_writer.hpp"

import shardmesh;
import shardmesh.checkpoint;

namespace tool {

/// Rewords an error for the command line: names of the library's options become the flags that set them. The hint
/// offers only options that the command has.
shardmesh::error in_flags(shardmesh::error problem);
/// Returns the line of an error in the words of the command line. It ends in the name of the error's code, which
/// docs/errors.md explains: "w: has another shape [shape_mismatch]".
std::string line_of(const shardmesh::error& problem);
/// Prints one line on stderr. A system error without a file refers to the path given to `works_on`.
void print_problem(const shardmesh::error& problem);
/// Prints "warning: ..." on stderr.
void print_warning(const shardmesh::error& warning);
/// Prints many problems; after the first hundred only their number.
void print_problems(const std::vector<shardmesh::error>& problems, std::int64_t more = 0);
void print_notes(const std::vector<std::string>& notes);
/// Returns the exit status of an error: 3 for the operating system's, 2 for the user's, 1 for the data's. Of the error
/// and its others, the highest status counts.
int status_of(const shardmesh::error& problem);
/// Returns the highest exit status of a list; `done` without a problem.
int status_of(const std::vector<shardmesh::error>& problems);
/// The same for what a command that only reads has found in the data: never `wrong_usage`, whatever the codes.
int status_of_findings(const std::vector<shardmesh::error>& problems);
/// Prints the error and its others; returns its exit status.
int report(const shardmesh::error& problem);
/// The same for an invalid value on the command line, whatever its code: returns `wrong_usage`.
int refuse(const shardmesh::error& problem);

/// Writes {"code","message","key","file","ranks","boxes","expected","found","hint","text"}. `line`: the line on stderr,
/// if it differs from that of `print_problem`.
void write(json_writer& out, const shardmesh::error& problem, std::string_view line = {});
/// Writes a list of them.
void write(json_writer& out, const std::vector<shardmesh::error>& problems);
/// Writes the members "problems", with the problems that each of these carries, and "more_problems", their number
/// beyond the list. `more`: the number that the caller has left out.
void write_problems(json_writer& out, const std::vector<shardmesh::error>& problems, std::int64_t more = 0);
/// Writes [{"file","key","name","harmless","dangerous","count"}].
void write(json_writer& out, const shardmesh::global_report& globals);
/// Writes the members "offsets" and "sizes" of an open object.
void write_box(json_writer& out, const shardmesh::box& b);

/// Returns lines about names in pickles that are not plain data: one per name with its first place; one for all
/// harmless names.
std::string globals_text(const shardmesh::global_report& globals);
/// A bar on stderr if that is a terminal and the work takes longer than a second; otherwise nothing.
class progress_bar {
 public:
  explicit progress_bar(std::int64_t total_bytes);
  ~progress_bar();
  void advance(std::int64_t bytes);

 private:
  struct state;
  std::unique_ptr<state> state_;
};

}  // namespace tool
