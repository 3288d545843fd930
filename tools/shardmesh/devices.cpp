// SPDX-License-Identifier: Apache-2.0
// `shardmesh devices`: shows the GPUs of this machine and the libraries that shardmesh uses for them. A missing library
// is an answer, not a failure.
#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "command.hpp"
#include "console.hpp"
#include "json_writer.hpp"

import shardmesh;
import shardmesh.devices;

namespace tool {
namespace {

void write_text_or_null(json_writer& out, const char* name, const std::string& text) {
  if (text.empty())
    out.key(name).null();
  else
    out.member(name, text);
}

int print_json(const shardmesh::device_report& report) {
  json_writer out;
  out.begin_object().key("gpus").begin_list();
  for (const shardmesh::gpu_info& gpu : report.gpus) {
    out.begin_object().member("device", shardmesh::to_string(gpu.where)).member("name", gpu.name);
    write_text_or_null(out, "compute_capability", gpu.compute_capability);
    out.member("memory_bytes", gpu.memory_bytes);
    write_text_or_null(out, "problem", gpu.problem);
    out.end_object();
  }
  out.end_list();
  write_text_or_null(out, "problem", report.problem);
  out.key("libraries").begin_object();
  for (const shardmesh::gpu_library& one : report.libraries) {
    out.key(one.name).begin_object().member("usable", one.is_usable);
    write_text_or_null(out, "version", one.version);
    write_text_or_null(out, "file", one.file);
    write_text_or_null(out, "problem", one.problem);
    write_text_or_null(out, "remedy", one.remedy);
    out.end_object();
  }
  out.end_object().member("kernels", report.kernels).key("kernel_cache").begin_object();
  write_text_or_null(out, "folder", report.kernel_cache);
  write_text_or_null(out, "problem", report.kernel_cache_problem);
  out.end_object().end_object().finish();
  return done;
}

int run_devices(bool json) {
  const shardmesh::device_report report = shardmesh::devices();
  if (json) return print_json(report);
  return print(shardmesh::to_string(report)) ? done : not_completed;
}

}  // namespace

void add_devices(CLI::App& app, invocation& call) {
  auto json = std::make_shared<bool>(false);
  CLI::App* command =
      app.add_subcommand("devices", "Show the GPUs of this machine, the libraries for them, and what to install");
  command->footer("shardmesh devices\nshardmesh devices --json");
  command->add_flag("--json", *json, "Print one JSON document");
  command->callback([json, &call] { call.status = run_devices(*json); });
}

}  // namespace tool
