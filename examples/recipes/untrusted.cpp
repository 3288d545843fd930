// SPDX-License-Identifier: Apache-2.0
// Examines a checkpoint from an untrusted source. Runs nothing in it. Usage: untrusted CHECKPOINT
#include <cstdio>
#include <string>
#include <vector>

import shardmesh;

namespace sm = shardmesh;

int main(int argc, char** argv) {
  if (argc != 2) return std::fprintf(stderr, "usage: untrusted CHECKPOINT\n"), 2;
  const auto opened = sm::open(argv[1]);
  // A checkpoint that cannot be opened is searched for names all the same: Python would run it up to its defect.
  const auto report = opened ? sm::verify(*opened) : sm::verify_unreadable(argv[1], opened.error());
  if (!report) return std::fprintf(stderr, "%s\n", to_string(report.error()).c_str()), 3;

  for (const sm::error& problem : report->problems) std::printf("problem: %s\n", to_string(problem).c_str());
  for (const sm::error& warning : report->warnings) std::printf("warning: %s\n", to_string(warning).c_str());
  for (const auto& global : report->globals.names)  // functions and classes that Python would look up
    if (!global.harmless) std::printf("%s: %s\n", global.dangerous ? "dangerous" : "unknown", global.name.c_str());
  const bool clean = report->ok() && report->warnings.empty();
  std::printf("%s\n", clean ? "nothing found" : "do not load this with Python");
  return clean ? 0 : 1;
}
