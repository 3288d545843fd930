// SPDX-License-Identifier: Apache-2.0
// How the commands speak: one line per problem on stderr, one JSON document or plain text on stdout, a progress bar on
// terminals.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "json_writer.hpp"

import shardmesh;

namespace tool {

/// The error in the words of the command line: where the library names one of its options, the flag of that option.
shardmesh::error in_flags(shardmesh::error problem);
/// One line on stderr; an error of the operating system without a file is about what was given (`works_on`).
void print_problem(const shardmesh::error& problem);
/// "warning: ..." on stderr.
void print_warning(const shardmesh::error& warning);
/// The same for many: after the first hundred their number.
void print_problems(const std::vector<shardmesh::error>& problems, std::int64_t more = 0);
void print_notes(const std::vector<std::string>& notes);
/// The exit status that an error means: 3 for the operating system's, 2 for the user's, 1 for the data's.
int status_of(const shardmesh::error& problem);
/// Prints the error; returns its exit status.
int report(const shardmesh::error& problem);
/// The same for a value on the command line that makes no sense, whatever its code: returns `wrong_usage`.
int refuse(const shardmesh::error& problem);

/// {"code","message","key","file","ranks","boxes","expected","found","hint","text"}; `line`: what stderr has of it,
/// where that is not what `print_problem` prints.
void write(json_writer& out, const shardmesh::error& problem, std::string_view line = {});
/// A list of them.
void write(json_writer& out, const std::vector<shardmesh::error>& problems);
/// [{"file","key","name","harmless","dangerous","count"}]
void write(json_writer& out, const shardmesh::global_report& globals);
/// The members "offsets" and "sizes" of an object that was begun.
void write_box(json_writer& out, const shardmesh::box& b);

/// Lines about what pickles name beside plain data: one for each name with the first place; one for the harmless ones.
std::string globals_text(const shardmesh::global_report& globals);
/// A bar on stderr when that is a terminal and the work takes longer than a second; nothing otherwise.
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
