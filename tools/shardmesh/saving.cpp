// SPDX-License-Identifier: Apache-2.0
#include "saving.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "command.hpp"
#include "console.hpp"
#include "report.hpp"

import shardmesh;

namespace tool {
using namespace shardmesh;

namespace {

// What a signal ended is said once, in the user's words.
std::vector<error> problems_of(const save_report& report, const std::string& destination) {
  for (const error& e : report.problems)
    if (e.code == errc::cancelled)
      return {fail(errc::cancelled, "interrupted: the destination is as it was").with_file(destination)};
  return report.problems;
}

}  // namespace

int print_report(const save_report& report, const std::string& destination) {
  const std::vector<error> problems = problems_of(report, destination);
  print_notes(report.notes);
  print_problems(problems, report.more_problems);
  int status = done;
  for (const error& e : problems) status = std::max(status, status_of(e));
  if (is_json())
    print(fmt::format(
        R"({{"ok":{},"problems":[{}],"more_problems":{},"notes":[{}],"tensors":{},"bytes":{},"objects":{},"files":{},)"
        R"("skipped_tensors":{},"skipped_objects":{},"excluded":{}}})"
        "\n",
        report.ok(), to_json(problems), report.more_problems, to_json(report.notes), report.tensors, report.bytes,
        report.objects, report.files, report.skipped_tensors, report.skipped_objects, report.excluded));
  else if (report.ok())
    print(fmt::format(
        "{}: wrote {} tensors ({}) and {} objects in {} files; skipped {} tensors and {} objects; excluded {}\n",
        escaped(destination), report.tensors, human_bytes(report.bytes), report.objects, report.files,
        report.skipped_tensors, report.skipped_objects, report.excluded));
  return status;
}

}  // namespace tool
