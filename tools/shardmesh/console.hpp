// SPDX-License-Identifier: Apache-2.0
// The output of this process: lines on stderr, text or one JSON document on stdout, and the last output of a process
// that cannot continue. stdout and stderr belong to the process, so their state is global; nothing else here is. The
// texts of errors and notes are in report.hpp.
#pragma once
#include <cstdint>
#include <string>

namespace tool {

/// From now on stdout holds exactly one JSON document. Printed text is kept until `finish`, so that a failure in the
/// middle leaves a complete document. main calls this once, before anything can fail.
void begin_json();
bool is_json();

/// Sets the path that errors without a file refer to. Also prepares the output of `out_of_memory`, while there is
/// memory.
void works_on(const std::string& path);
/// The path of `works_on`; "shardmesh" before that.
const std::string& subject();
/// Sets the command, or the action with a document of its own ("run resume-plan"). A document of failure has its
/// members, all empty (`"tensors":{}`).
void set_failure_members(const std::string& command);

/// Prints one line on stderr: a note, a warning, or a count. It must hold no control bytes (use `escaped` on text from
/// files).
void print_line(const std::string& line);
/// Prints a problem, which a document of failure also lists; `json` is the problem as an object.
void print_problem(const std::string& line, const std::string& json);
/// Prints "... and 3 more problems", which a document of failure counts; nothing for 0.
void print_more_problems(std::int64_t count);

/// Writes to stdout, or adds to the document. Returns false once stdout accepts no more; `finish` will report it.
bool print(std::string text);

/// Writes the document and flushes stdout. If the command failed without a document, writes
/// {"ok":false,"problems":[..]}. Returns `status`, or 3 with a line on stderr if stdout does not accept everything.
int finish(int status);
/// Drops the text kept for stdout, so that `finish` makes a document of failure. Called after an exception.
void drop_document();
/// The document of a command that a signal ends, with its members. Another thread than that of the command may call
/// this.
std::string interrupted_document() noexcept;
/// Ends a process that has no memory left, without allocating: one line, one document, status 3.
int out_of_memory() noexcept;

}  // namespace tool
