// SPDX-License-Identifier: Apache-2.0
#include "saving.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "command.hpp"
#include "console.hpp"
#include "counted.hpp"
#include "json_writer.hpp"
#include "report.hpp"

import shardmesh;
import shardmesh.checkpoint;
import shardmesh.core;
import shardmesh.storage;

namespace tool {
using namespace shardmesh;

namespace {

// A save that a signal ended is reported once, in the user's terms. A hint says what an upload has left or replaced.
std::vector<error> problems_of(const result<save_report>& saved, const std::string& destination) {
  if (saved) return {};
  std::vector<error> problems = saved.error().problems();
  for (const error& e : problems)
    if (e.code == errc::cancelled) {
      if (e.hint.empty())
        return {fail(errc::cancelled, "interrupted: the destination is as it was").with_file(destination)};
      return {fail(errc::cancelled, "interrupted").with_file(e.file.empty() ? destination : e.file).with_hint(e.hint)};
    }
  return problems;
}

void print_json(const save_report& report, const std::vector<error>& problems, std::int64_t more_problems,
                const std::string& objects) {
  json_writer out;
  out.begin_object().member("ok", problems.empty());
  write_problems(out, problems, more_problems);
  out.key("notes")
      .list(report.notes)
      .member("tensors", report.tensors)
      .member("bytes", report.bytes)
      .member("objects", report.objects)
      .key("objects_file");
  if (objects.empty())
    out.null();
  else
    out.value(objects);
  out.member("files", report.files)
      .member("skipped_tensors", report.skipped_tensors)
      .member("skipped_objects", report.skipped_objects)
      .member("excluded", report.excluded)
      .end_object()
      .finish();
}

// "to: wrote 4 tensors (3.2 KiB) in 1 file and 2 objects in to/objects.json; skipped 1 object"
std::string written_line(const save_report& report, const std::string& destination, const std::string& objects) {
  const std::string tensors = fmt::format("{} ({})", counted(report.tensors, "tensor"), human_bytes(report.bytes));
  const std::string files = counted(report.files, "file"), others = counted_if_any(report.objects, "object");
  std::string line = fmt::format("{}: wrote ", escaped(destination));
  line += objects.empty() ? fmt::format("{} in {}", enumerated({tensors, others}), files)
                          : fmt::format("{} in {} and {} in {}", tensors, files, others, escaped(objects));
  const std::string skipped =
      enumerated({counted_if_any(report.skipped_tensors, "tensor"), counted_if_any(report.skipped_objects, "object")});
  if (!skipped.empty()) line += "; skipped " + skipped;
  if (report.excluded > 0) line += "; excluded " + counted(report.excluded, "entry", "entries");
  return line + "\n";
}

}  // namespace

int print_report(const result<save_report>& saved, const std::string& destination, target_format to) {
  const save_report report = saved ? *saved : save_report();  // a failure has no report
  const std::vector<error> problems = problems_of(saved, destination);
  const std::int64_t more_problems = saved ? 0 : saved.error().more;
  print_notes(report.notes);
  print_problems(problems, more_problems);
  const int status = status_of(problems);
  // The objects file beside formats that hold only tensors.
  const std::string objects = report.objects > 0 ? objects_file(target_of(to), destination).string() : std::string();
  if (is_json())
    print_json(report, problems, more_problems, objects);
  else if (saved)
    print(written_line(report, destination, objects));
  return status;
}

}  // namespace tool
