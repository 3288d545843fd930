// SPDX-License-Identifier: Apache-2.0
// One process creates a destination of files, and others add a file each, like the ranks of a save. Run by
// crash_points.py:
//   staged_processes DESTINATION OTHERS commit|discard TEXT [--force]
// With `discard`, the creator gives up while the others still work. Each file contains TEXT and its process's number.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

import shardmesh.storage;

using namespace shardmesh;
namespace fs = std::filesystem;

namespace {

result<void> add(staged_output& output, int number, const std::string& text) {
  auto file = output.add_file("part" + std::to_string(number));
  if (!file) return std::move(file).error();
  const std::string whole = text + " of " + std::to_string(number);
  const auto bytes = std::as_bytes(std::span(whole));
  if (auto done = output.write(*file, 0, bytes.first(3)); !done) return done;
  if (auto done = output.write(*file, 3, bytes.subspan(3)); !done) return done;
  return output.prepare();
}

// A process that joins, adds its file, and leaves the commit to the creator. No error if the creator has discarded the
// folder.
int other(const fs::path& folder, int number, const std::string& text) {
  auto output = staged_output::join(folder);
  if (!output || !add(*output, number, text)) return 0;
  output->release();
  return 0;
}

result<void> make(const fs::path& destination, int others, bool commits, const std::string& text, bool forced) {
  output_options options;
  options.overwrite = forced;
  options.may_replace = [](const fs::path&, const destination_snapshot&) { return result<void>(); };
  auto output = staged_output::directory(destination, options);
  if (!output) return std::move(output).error();
  std::vector<pid_t> children;
  for (int number = 1; number <= others; ++number) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(other(output->folder(), number, text));
    children.push_back(child);
  }
  auto mine = add(*output, 0, text);
  if (!mine || !commits) return mine;
  for (const pid_t child : children) ::waitpid(child, nullptr, 0);
  return output->commit();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  const bool forced = argc > 5 && std::strcmp(argv[5], "--force") == 0;
  const auto done = make(argv[1], std::atoi(argv[2]), std::strcmp(argv[3], "commit") == 0, argv[4], forced);
  while (::wait(nullptr) > 0) {
  }
  if (done) return 0;
  std::fprintf(stderr, "%s\n", to_string(done.error()).c_str());
  return 3;
}
