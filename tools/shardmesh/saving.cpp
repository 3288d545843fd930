// SPDX-License-Identifier: Apache-2.0
#include "saving.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "command.hpp"
#include "console.hpp"
#include "report.hpp"

import shardmesh;

namespace tool {
using namespace shardmesh;

int print_report(const save_report& report, const std::string& destination) {
  print_notes(report.notes);
  print_problems(report.problems, report.more_problems);
  int status = done;
  for (const error& e : report.problems) status = std::max(status, status_of(e));
  if (is_json())
    print(fmt::format(
        R"({{"ok":{},"problems":[{}],"more_problems":{},"notes":[{}],"tensors":{},"bytes":{},"objects":{},"files":{},)"
        R"("skipped_tensors":{},"skipped_objects":{},"excluded":{}}})"
        "\n",
        report.ok(), to_json(report.problems), report.more_problems, to_json(report.notes), report.tensors,
        report.bytes, report.objects, report.files, report.skipped_tensors, report.skipped_objects, report.excluded));
  else if (report.ok())
    print(fmt::format(
        "{}: wrote {} tensors ({}) and {} objects in {} files; skipped {} tensors and {} objects; excluded {}\n",
        escaped(destination), report.tensors, human_bytes(report.bytes), report.objects, report.files,
        report.skipped_tensors, report.skipped_objects, report.excluded));
  return status;
}

}  // namespace tool
