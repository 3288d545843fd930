// SPDX-License-Identifier: Apache-2.0
#include "console.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "command.hpp"
#include "report.hpp"

import shardmesh;

namespace tool {
using namespace shardmesh;

namespace {

constexpr const char* memory_text = "there is not enough memory";

// Empty until something is known about the command: nothing here allocates while it is set up.
struct last_words {
  std::string line, document;
};

struct said_so_far {
  bool json = false;
  std::string path = "shardmesh";
  std::string members;                // of this command's documents of failure
  std::vector<std::string> document;  // pieces, kept until the end
  std::vector<std::string> problems;  // as JSON objects
  last_words memory;
  int output_error = 0;  // errno of the first write to stdout that failed
};

said_so_far& said() {
  static said_so_far all;
  return all;
}

std::string failure_document(const std::vector<std::string>& problems) {
  std::string text = "{" + said().members + R"("ok":false,"problems":[)";
  for (std::size_t i = 0; i < problems.size(); ++i) text += (i == 0 ? "" : ",") + problems[i];
  return text + "]}\n";
}

// Members that a document of this command has in any case, with nothing in them.
const char* members_of(const std::string& command) {
  if (command == "inspect") return R"("format":null,"version":null,"tensors":{},"objects":{},"globals":[],)";
  if (command == "verify")
    return R"("unnamed_problems":0,"warnings":[],"chunks":0,"objects":0,"bytes":0,"checked_bytes":0,)"
           R"("unchecked_chunks":0,"unchecked_objects":0,"dangerous_globals":[],"unknown_globals":0,"globals":[],)";
  if (command == "diff") return R"("equal":null,"differences":[],)";
  if (command == "clean") return R"("dry_run":false,"removed":[],"kept":[],)";
  if (command == "check-shards") return R"("total":1,)";
  return "";
}

void prepare_last_words() {
  const error problem = fail(errc::no_memory, memory_text).with_file(said().path);
  last_words made{to_string(problem), failure_document({to_json(problem)})};
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
  said().path = path;
  prepare_last_words();
}

const std::string& subject() {
  return said().path;
}

void set_failure_members(const std::string& command) {
  said().members = members_of(command);
  prepare_last_words();
}

void print_line(const std::string& line) {
  std::fprintf(stderr, "%s\n", line.c_str());
}

void print_problem(const std::string& line, const std::string& json) {
  constexpr std::size_t most = 1000;  // a command that expects more has a document and a count of its own
  print_line(line);
  if (said().json && said().problems.size() < most) said().problems.push_back(json);
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

int out_of_memory() noexcept {
  said_so_far& all = said();
  all.document.clear();
  const bool is_prepared = !all.memory.document.empty();
  std::fputs(is_prepared ? all.memory.line.c_str() : "shardmesh: there is not enough memory", stderr);
  std::fputs("\n", stderr);
  constexpr const char* nothing_known =
      R"({"ok":false,"problems":[{"message":"there is not enough memory","text":"shardmesh: there is not enough memory"}]})"
      "\n";
  if (all.json) std::fputs(is_prepared ? all.memory.document.c_str() : nothing_known, stdout);
  std::fflush(stdout);
  return not_completed;
}

}  // namespace tool
