// SPDX-License-Identifier: Apache-2.0
#include "console.hpp"

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "command.hpp"
#include "counted.hpp"
#include "failure_members.hpp"
#include "json_writer.hpp"
#include "report.hpp"

import shardmesh;
import shardmesh.core;

namespace tool {
using namespace shardmesh;

namespace {

constexpr const char* memory_text = "there is not enough memory";

// Empty until something is known about the command: setting this up allocates nothing.
struct last_words {
  std::string line, document;
};

struct said_so_far {
  bool json = false;
  std::string path = "shardmesh";
  std::string command;  // whose members a document of failure has; written under `command_lock`
  std::mutex command_lock;
  std::vector<std::string> document;  // pieces, kept until the end
  std::vector<std::string> problems;  // as JSON objects
  std::int64_t more_problems = 0;     // not in that list
  last_words memory;
  int output_error = 0;  // errno of the first failed write to stdout
};

said_so_far& said() {
  static said_so_far all;
  return all;
}

std::string failure_document(const std::string& command, const std::vector<std::string>& problems,
                             std::int64_t more_problems) {
  return json_text([&](json_writer& out) {
           out.begin_object();
           write_empty_members(out, command);
           out.member("ok", false).key("problems").begin_list();
           for (const std::string& problem : problems) out.raw(problem);
           out.end_list().member("more_problems", more_problems).end_object();
         }) +
         "\n";
}

std::string failure_document(const std::vector<std::string>& problems) {
  return failure_document(said().command, problems, said().more_problems);
}

void prepare_last_words() {
  const error problem = fail(errc::no_memory, memory_text).with_file(said().path);
  last_words made{line_of(problem), failure_document({json_text([&](json_writer& out) { write(out, problem); })})};
  said().memory = std::move(made);
}

bool write_out(const std::string& text) {
  const bool good = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (!good && said().output_error == 0) said().output_error = errno;
  return good;
}

}  // namespace

void begin_json() {
  said().json = true;
}

bool is_json() {
  return said().json;
}

void works_on(const std::string& path) {
  said().path = shardmesh::printable_url(path);
  prepare_last_words();
}

const std::string& subject() {
  return said().path;
}

void set_failure_members(const std::string& command) {
  {
    const std::scoped_lock guard(said().command_lock);
    said().command = command;
  }
  prepare_last_words();
}

void print_line(const std::string& line) {
  std::fprintf(stderr, "%s\n", line.c_str());
}

void print_problem(const std::string& line, const std::string& json) {
  constexpr std::size_t most = 1000;
  print_line(line);
  if (!said().json) return;
  if (said().problems.size() < most)
    said().problems.push_back(json);
  else
    ++said().more_problems;
}

void print_more_problems(std::int64_t count) {
  if (count == 0) return;
  print_line("... and " + counted(count, "more problem"));
  said().more_problems += count;
}

bool print(std::string text) {
  if (!said().json) return write_out(text);
  said().document.push_back(std::move(text));
  return true;
}

int finish(int status) {
  said_so_far& all = said();
  if (all.json && all.document.empty() && status != done) all.document.push_back(failure_document(all.problems));
  for (const std::string& piece : all.document)
    if (!write_out(piece)) break;
  if (std::fflush(stdout) != 0 && all.output_error == 0) all.output_error = errno;
  if (all.output_error == 0) return status;
  print_line(std::string("shardmesh: cannot write to standard output: ") + std::strerror(all.output_error));
  return not_completed;
}

void drop_document() {
  said().document.clear();
}

std::string interrupted_document() noexcept {
  try {
    std::string command;
    {
      const std::scoped_lock guard(said().command_lock);
      command = said().command;
    }
    const std::string problem = json_text([](json_writer& out) {
      write(out, fail(errc::cancelled, "interrupted").with_file("shardmesh"), "shardmesh: interrupted");
    });
    return failure_document(command, {problem}, 0);
  } catch (const std::exception&) {  // no memory
    return {};
  }
}

int out_of_memory() noexcept {
  said_so_far& all = said();
  all.document.clear();
  const bool is_prepared = !all.memory.document.empty();
  std::fputs(is_prepared ? all.memory.line.c_str() : "shardmesh: there is not enough memory [no_memory]", stderr);
  std::fputs("\n", stderr);
  constexpr const char* nothing_known =
      R"({"ok":false,"problems":[{"message":"there is not enough memory","text":"shardmesh: there is not enough memory [no_memory]"}],"more_problems":0})"
      "\n";
  if (all.json) std::fputs(is_prepared ? all.memory.document.c_str() : nothing_known, stdout);
  std::fflush(stdout);
  return not_completed;
}

}  // namespace tool
