// SPDX-License-Identifier: Apache-2.0
// verify, diff, convert, and reshard, and the selection of keys. Options are the keyword arguments of the Python
// functions, all of them present.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
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

py::list lines(const std::vector<std::string>& given) {
  py::list made;
  for (const std::string& line : given) made.append(text(line));
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
  options.quantize = rules<quantize_rule>(given, "quantize", &parse_quantize_rule);
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
  options.allow_shape_mismatch = given["allow_shape_mismatch"].cast<bool>();
  options.selection = selection(given);
  options.skip_unsupported = given["skip_unsupported"].cast<bool>();
  const std::string path = bytes_of(destination);
  const plain_saving saving(given);
  return told(waited(given["report"], [&](watch& watching) {
    set_saving(options, saving.with(watching));
    return reshard(*reader, path, options);
  }));
}

// options: threads, allow_globals, end (see `to_limit`)
verify_options options_of_verify(bool quick, const py::dict& given) {
  verify_options made{.quick = quick, .threads = given["threads"].cast<int>()};
  for (const py::handle name : given["allow_globals"]) made.allow_globals.push_back(bytes_of(name));
  made.within = to_limit(given["end"]);
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

py::dict verify_checkpoint(const reader_pointer& reader, bool quick, const py::object& progress,
                           const py::dict& given) {
  verify_options options = options_of_verify(quick, given);
  const verify_report report = value_of(waited(progress, [&](watch& watching) {
    options.cancel = watching.stop.get_token();
    return verify(*watched(*reader, watching), options);
  }));
  return told_report(report, options);
}

// For a checkpoint that cannot be opened. The report leaves out the reason, which Python has already.
py::dict verify_names(const py::object& path, const py::dict& given) {
  const verify_options options = options_of_verify(false, given);
  const std::string name = bytes_of(path);
  verify_report report = value_of(
      waited(py::none(), [&](watch&) { return verify_unreadable(name, fail(errc::bad_format, ""), options); }));
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

py::dict diff_checkpoints(const reader_pointer& left, const reader_pointer& right, const py::dict& given) {
  diff_options options{.tolerance = given["tolerance"].cast<double>(),
                       .layout = given["layout"].cast<bool>(),
                       .ignore_dtype = given["ignore_dtype"].cast<bool>(),
                       .selection = selection(given),
                       .threads = given["threads"].cast<int>(),
                       .within = to_limit(given["end"])};
  const diff_report report = value_of(waited(given["report"], [&](watch& watching) {
    options.cancel = watching.stop.get_token();
    const auto one = watched(*left, watching), other = watched(*right, watching);
    return diff(*one, *other, options);
  }));
  py::list differences;
  for (const key_difference& one : report.differences) differences.append(described(one));
  py::dict made;
  made["differences"] = differences;
  made["problems"] = to_python(report.problems);
  made["notes"] = lines(report.notes);
  made["tensors"] = report.tensors;
  made["objects"] = report.objects;
  made["bytes"] = report.bytes;
  return made;
}

// An entry of a state dict, as Python describes it: (key, dtype, or None for an object, and the texts in an object that
// is a list).
struct described_entry {
  std::string key;
  std::optional<dtype> type;
  std::vector<std::string> texts;

  explicit described_entry(const py::sequence& given) : key(bytes_of(given[0])) {
    // A dtype that we lack is not cast; it is refused later, where the tensor's memory is read.
    if (!given[1].is_none()) type = parse_dtype(bytes_of(given[1])).value_or(dtype::undefined);
    for (const py::handle one : given[2]) texts.push_back(bytes_of(one));
  }
};

// Chooses entries of a state dict. `kept` has (index, new key, new dtype, texts) of each; `texts` is None unless the
// object is a list of parameters in which names may change. It then has, for each text, its new name, or None if the
// parameter is left out.
py::dict select_from_state(const py::sequence& entries, const py::dict& given) {
  std::vector<described_entry> described;
  for (const py::handle entry : entries) described.emplace_back(py::reinterpret_borrow<py::sequence>(entry));
  std::vector<selectable> candidates;
  for (const described_entry& one : described)
    candidates.push_back({one.key, one.type.value_or(dtype::undefined), one.type.has_value()});
  selection_result chosen = select_keys(candidates, selection(given));
  if (!chosen.errors.empty()) raise(fail_all(std::move(chosen.errors)));
  py::list kept;
  for (const selected& one : chosen.kept) {
    py::object texts = py::none();
    if (chosen.lists.concerns(one.index)) {
      py::list renamed;
      for (const std::string& old : described[one.index].texts) {
        const std::optional<std::string> now = chosen.lists.renamed(one.index, old);
        renamed.append(now ? py::object(text(*now)) : py::none());
      }
      texts = std::move(renamed);
    }
    kept.append(py::make_tuple(one.index, text(one.key), text(name(one.type)), texts));
  }
  py::dict made;
  made["kept"] = kept;
  made["excluded"] = chosen.excluded;
  made["notes"] = lines(chosen.notes);
  return made;
}

}  // namespace

selection_options to_selection(const py::dict& options) {
  return selection(options);
}

void add_commands(py::module_& native) {
  native.def("verify", &verify_checkpoint, py::arg("checkpoint"), py::arg("quick"), py::arg("report"),
             py::arg("options"));
  native.def("verify_names", &verify_names, py::arg("path"), py::arg("options"));
  native.def("diff", &diff_checkpoints, py::arg("left"), py::arg("right"), py::arg("options"));
  native.def("select", &select_from_state, py::arg("entries"), py::arg("selection"));
  native.def("convert", &convert_checkpoint, py::arg("checkpoint"), py::arg("destination"), py::arg("options"),
             py::arg("like").none(true));
  native.def("reshard", &reshard_checkpoint, py::arg("checkpoint"), py::arg("destination"), py::arg("options"),
             py::arg("like").none(true));
}

}  // namespace bindings
