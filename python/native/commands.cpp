// SPDX-License-Identifier: Apache-2.0
// verify, diff, convert, and reshard. Options are the keyword arguments of their Python functions, all of them present.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "errors.hpp"
#include "module.hpp"
#include "saving.hpp"
#include "saving_options.hpp"
#include "values.hpp"
#include "waiting.hpp"
#include "watched_reader.hpp"

import shardmesh;
import shardmesh.checkpoint;
import shardmesh.core;

namespace bindings {
namespace py = pybind11;
using namespace shardmesh;

namespace {

using reader_pointer = std::shared_ptr<checkpoint_reader>;

// Parses every text of a list; an error begins with the option's name.
template <class Rule>
std::vector<Rule> rules(const py::dict& options, const char* option, result<Rule> (*parse)(std::string_view)) {
  std::vector<Rule> made;
  for (const py::handle text : options[option]) {
    auto rule = parse(bytes_of(text));
    if (!rule) {
      error cause = std::move(rule).error();
      cause.message = std::string(option) + " " + cause.message;
      raise(cause);
    }
    made.push_back(*std::move(rule));
  }
  return made;
}

selection_options selection(const py::dict& options) {
  selection_options made;
  made.only = rules<key_pattern>(options, "only", &key_pattern::compile);
  made.skip = rules<key_pattern>(options, "skip", &key_pattern::compile);
  made.rename = rules<rename_rule>(options, "rename", &parse_rename_rule);
  made.cast = rules<cast_rule>(options, "cast", &parse_cast_rule);
  made.strip_prefix = bytes_of(options["strip_prefix"]);
  made.no_optimizer = options["no_optimizer"].cast<bool>();
  made.optimizer_follows = options["state_follows"].cast<bool>();
  made.allow_unused = options["allow_unused"].cast<bool>();
  made.allow_narrowing = options["allow_narrowing"].cast<bool>();
  return made;
}

py::dict convert_checkpoint(const reader_pointer& reader, const py::str& destination, const py::dict& given,
                            const reader_pointer& like) {
  convert_options options;
  options.format = to_format(given["format"]);
  options.selection = selection(given);
  options.max_shard_bytes = given["max_shard_bytes"].cast<std::int64_t>();
  options.skip_objects = given["skip_objects"].cast<bool>();
  options.skip_unsupported = given["skip_unsupported"].cast<bool>();
  const std::string dedup = bytes_of(given["dedup"]);
  options.dedup = dedup == "equal" ? dedup_rule::equal : dedup == "tied" ? dedup_rule::tied : dedup_rule::none;
  options.nest = given["nest"].cast<bool>();
  options.components = given["components"].cast<bool>();
  options.item = bytes_of(given["item"]);
  options.payload = to_payload(given["payload"]);
  options.like = like.get();
  options.allow_shape_mismatch = given["allow_shape_mismatch"].cast<bool>();
  const std::string path = bytes_of(destination);
  const plain_saving saving(given);
  return told(waited(given["report"], [&](watch& watching) {
    set_saving(options, saving.with(watching));
    return convert(*reader, path, options);
  }));
}

py::dict reshard_checkpoint(const reader_pointer& reader, const py::str& destination, const py::dict& given,
                            const reader_pointer& like) {
  reshard_options options;
  if (!given["mesh"].is_none()) options.mesh = value_of(parse_mesh(bytes_of(given["mesh"])));
  options.like = like.get();
  options.place = rules<placement_rule>(given, "place", &parse_placement_rule);
  if (!given["default"].is_none()) options.default_placements = value_of(parse_placements(bytes_of(given["default"])));
  options.optimizer_follows = given["optimizer_follows"].cast<bool>();
  options.selection = selection(given);
  options.skip_unsupported = given["skip_unsupported"].cast<bool>();
  const std::string path = bytes_of(destination);
  const plain_saving saving(given);
  return told(waited(given["report"], [&](watch& watching) {
    set_saving(options, saving.with(watching));
    return reshard(*reader, path, options);
  }));
}

verify_options options_of_verify(bool quick, int threads, const py::list& allow_globals) {
  verify_options made{.quick = quick, .threads = threads};
  for (const py::handle name : allow_globals) made.allow_globals.push_back(bytes_of(name));
  return made;
}

py::dict told_report(const verify_report& report, const verify_options& options) {
  py::dict made;
  made["problems"] = to_python(report.problems);
  made["more_problems"] = report.more_problems;
  made["warnings"] = to_python(report.warnings);
  made["chunks"] = report.chunks;
  made["objects"] = report.objects;
  made["bytes"] = report.bytes;
  made["checked_bytes"] = report.checked_bytes;
  made["unchecked_chunks"] = report.unchecked_chunks;
  made["unchecked_objects"] = report.unchecked_objects;
  made["unread_tensors"] = report.unread_tensors;
  const global_counts names = count_globals(report.globals, options.allow_globals);
  py::list dangerous;
  for (const std::string& name : names.dangerous) dangerous.append(text(name));
  made["dangerous_globals"] = dangerous;
  made["unknown_globals"] = names.unknown;
  return made;
}

py::dict verify_checkpoint(const reader_pointer& reader, bool quick, int threads, const py::object& progress,
                           const py::list& allow_globals) {
  const verify_options options = options_of_verify(quick, threads, allow_globals);
  const verify_report report =
      value_of(waited(progress, [&](watch& watching) { return verify(*watched(*reader, watching), options); }));
  return told_report(report, options);
}

// For a checkpoint that cannot be opened. The report leaves out the reason, which Python has already.
py::dict verify_names(const py::object& path, int threads, const py::list& allow_globals) {
  const verify_options options = options_of_verify(false, threads, allow_globals);
  verify_report report = value_of(verify_unreadable(bytes_of(path), fail(errc::bad_format, ""), options));
  report.problems.erase(report.problems.begin());
  return told_report(report, options);
}

py::dict described(const key_difference& d) {
  py::dict made;
  made["key"] = text(d.key);
  made["kind"] = text(name(d.kind));
  made["text"] = text(d.text);
  made["different"] = d.different;
  made["elements"] = d.elements;
  made["first_index"] = to_python(d.first_index);
  made["largest"] = d.largest;
  return made;
}

py::dict diff_checkpoints(const reader_pointer& left, const reader_pointer& right, double tolerance, bool layout,
                          bool ignore_dtype, int threads, const py::object& progress) {
  const diff_report report = value_of(waited(progress, [&](watch& watching) {
    const auto one = watched(*left, watching), other = watched(*right, watching);
    return diff(*one, *other,
                {.tolerance = tolerance, .layout = layout, .ignore_dtype = ignore_dtype, .threads = threads});
  }));
  py::list differences;
  for (const key_difference& one : report.differences) differences.append(described(one));
  py::dict made;
  made["differences"] = differences;
  made["problems"] = to_python(report.problems);
  made["tensors"] = report.tensors;
  made["objects"] = report.objects;
  made["bytes"] = report.bytes;
  return made;
}

}  // namespace

void add_commands(py::module_& native) {
  native.def("verify", &verify_checkpoint, py::arg("checkpoint"), py::arg("quick"), py::arg("threads"),
             py::arg("report"), py::arg("allow_globals"));
  native.def("verify_names", &verify_names, py::arg("path"), py::arg("threads"), py::arg("allow_globals"));
  native.def("diff", &diff_checkpoints, py::arg("left"), py::arg("right"), py::arg("tolerance"), py::arg("layout"),
             py::arg("ignore_dtype"), py::arg("threads"), py::arg("report"));
  native.def("convert", &convert_checkpoint, py::arg("checkpoint"), py::arg("destination"), py::arg("options"),
             py::arg("like").none(true));
  native.def("reshard", &reshard_checkpoint, py::arg("checkpoint"), py::arg("destination"), py::arg("options"),
             py::arg("like").none(true));
}

}  // namespace bindings
