// SPDX-License-Identifier: Apache-2.0
// What this process says: lines on stderr, text or one JSON document on stdout, and its last words when it cannot go
// on. stdout and stderr are the process's own, so what was said through them is, too: nothing else here is global.
// Not here: how errors and notes read (report.hpp).
#pragma once
#include <cstdint>
#include <string>

namespace tool {

/// From now on stdout holds exactly one JSON document: what is printed is kept until `finish`, so that a failure in the
/// middle leaves a whole document of its own. Called once, by main, before anything can fail.
void begin_json();
bool is_json();

/// What errors without a file are about: the path that was given. The last words of `out_of_memory` are made now, while
/// there is memory.
void works_on(const std::string& path);
/// The path of `works_on`; "shardmesh" before that.
const std::string& subject();
/// The command whose documents these are: one of failure has its members, with nothing in them (`"tensors":{}`).
void set_failure_members(const std::string& command);

/// One line on stderr: a note, a warning, a count. It holds no control bytes (use `escaped` on what comes from files).
void print_line(const std::string& line);
/// The same for a problem, which a document of failure names; `json` is the problem as an object.
void print_problem(const std::string& line, const std::string& json);
/// "... and 3 more problems", which a document of failure counts; nothing for 0.
void print_more_problems(std::int64_t count);

/// Writes to stdout, or adds to the document. False when stdout takes no more; `finish` will say so.
bool print(std::string text);

/// Writes the document (when the command made none and failed: {"ok":false,"problems":[..]}) and flushes stdout.
/// Returns `status`, or 3 with a line on stderr when stdout does not take it all.
int finish(int status);
/// Drops what was kept for stdout, so that `finish` makes a document of failure: something was thrown.
void drop_document();
/// The end of a process that has no memory left, with nothing allocated: one line, one document, status 3.
int out_of_memory() noexcept;

}  // namespace tool
