// SPDX-License-Identifier: Apache-2.0
#include "saving.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "command.hpp"
#include "report.hpp"

import shardmesh;

namespace tool {
using namespace shardmesh;

int print_report(const save_report& report, const std::string& destination) {
  for (const std::string& note : report.notes) print_problem("note: " + escaped(note));
  int status = done;
  for (const error& e : report.problems) {
    if (e.code == errc::cancelled)
      print_problem("shardmesh: interrupted: " + escaped(destination) + " is as it was");
    else
      print_problem(e);
    status = std::max(status, status_of(e));
  }
  if (!report.ok()) return status;
  fmt::print("{}: wrote {} tensors ({}) and {} objects in {} files; skipped {} tensors and {} objects; excluded {}\n",
             escaped(destination), report.tensors, human_bytes(report.bytes), report.objects, report.files,
             report.skipped_tensors, report.skipped_objects, report.excluded);
  return done;
}

}  // namespace tool
