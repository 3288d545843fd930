// SPDX-License-Identifier: Apache-2.0
// The folder of a training run: its steps, their checks and pins, and the writer of one process. Python saves and loads
// the steps.
#include <pybind11/stl.h>
#include <shardmesh/try.hpp>

#include <chrono>
#include <concepts>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include "errors.hpp"
#include "module.hpp"
#include "waiting.hpp"

import shardmesh;
import shardmesh.core;
import shardmesh.run;

namespace bindings {
namespace py = pybind11;
using namespace shardmesh;

namespace {

step_names to_names(const py::str& given) {
  const std::string spelled = bytes_of(given);
  if (const auto names = step_names_of(spelled)) return *names;
  raise(fail(errc::invalid_argument, "the naming convention of the steps is unknown")
            .with_values("step, checkpoint, or iter", spelled));
}

// {"last": int, "every": int, "best": int, "highest_is_best": bool, "since": seconds since 1970, or None}
keep_rules to_rules(const py::handle& given) {
  const auto rules = py::reinterpret_borrow<py::dict>(given);
  keep_rules made;
  made.last = rules["last"].cast<std::int64_t>();
  made.every = rules["every"].cast<std::int64_t>();
  made.best = rules["best"].cast<std::int64_t>();
  made.highest_is_best = rules["highest_is_best"].cast<bool>();
  if (!rules["since"].is_none())
    made.since = std::chrono::system_clock::time_point(std::chrono::seconds(rules["since"].cast<std::int64_t>()));
  return made;
}

// (step, path, time of the save in seconds since 1970, metric, whether it is pinned)
py::tuple described(const run_step& step) {
  const double saved = std::chrono::duration<double>(step.saved.time_since_epoch()).count();
  const py::object metric = step.metric ? py::object(py::float_(*step.metric)) : py::object(py::none());
  return py::make_tuple(step.step, text(step.path.string()), saved, metric, step.is_pinned);
}

py::list lines(const std::vector<std::string>& given) {
  py::list made;
  for (const std::string& line : given) made.append(text(line));
  return made;
}

// A plan and its outcome.
struct pruned {
  prune_plan plan;
  prune_report report;
};

// {"kept": [(step, [reason])], "deleted": [step], "leftovers": int, "bytes": int, "problems": [Error], "notes": [str]}
py::dict described(const pruned& done, bool dry_run) {
  py::list kept, deleted;
  for (const kept_step& one : done.plan.kept) kept.append(py::make_tuple(described(one.step), lines(one.reasons)));
  for (const deleted_step& one : done.plan.deleted) {
    std::error_code code;
    const bool is_there = std::filesystem::exists(std::filesystem::symlink_status(one.step.path, code));
    if (dry_run || !is_there) deleted.append(described(one.step));
  }
  py::dict made;
  made["kept"] = kept;
  made["deleted"] = deleted;
  made["leftovers"] = dry_run ? static_cast<std::int64_t>(done.plan.leftovers.size()) : done.report.leftovers;
  made["bytes"] = dry_run ? done.plan.deleted_bytes() : done.report.bytes;
  made["problems"] = to_python(done.report.problems);
  made["notes"] = lines(done.plan.notes);
  return made;
}

// A writer whose calls may come from several threads of Python: each waits for the one before it.
class shared_writer {
 public:
  explicit shared_writer(run_writer writer) : writer_(std::move(writer)) {}

  // Calls `use` with the writer. Call it without the interpreter's lock, because it may wait.
  template <std::invocable<run_writer&> Use>
  std::invoke_result_t<Use, run_writer&> with(Use&& use) {
    const std::scoped_lock held(lock_);
    return use(writer_);
  }
  // Waits for no other call.
  std::vector<std::string> take_notes() { return writer_.take_notes(); }

 private:
  std::mutex lock_;
  run_writer writer_;
};

std::unique_ptr<shared_writer> open_writer(const py::str& folder, const py::str& names, bool incremental,
                                           const py::dict& keep) {
  checkpoint_run_options options;
  options.names = to_names(names);
  options.incremental = incremental;
  options.keep = to_rules(keep);
  return std::make_unique<shared_writer>(value_of(run_writer::open(bytes_of(folder), options)));
}

// Returns (path, whether to overwrite, the previous step's path, or "").
py::tuple begin_save(shared_writer& shared, std::int64_t step, std::optional<double> metric, bool overwrite) {
  run_save_options how;
  how.metric = metric;
  how.saving.overwrite = overwrite;
  const step_preparation made = value_of(waited(py::none(), [&](watch&) {
    return shared.with([&](run_writer& writer) { return writer.begin_save(step, how); });
  }));
  return py::make_tuple(text(made.path.string()), made.overwrite, text(made.previous.string()));
}

void end_save(shared_writer& shared, std::int64_t step, bool is_saved) {
  const auto end = [&](run_writer& writer) { writer.end_save(step, is_saved); };
  wait_for([&](watch&) { shared.with(end); }, py::none());
}

void note_resume(shared_writer& shared, std::int64_t step) {
  const auto note = [&](run_writer& writer) { writer.note_resume(step); };
  wait_for([&](watch&) { shared.with(note); }, py::none());
}

py::dict prune_by_writer(shared_writer& shared, const py::dict& keep, bool dry_run) {
  const keep_rules rules = to_rules(keep);
  const auto prune = [&](run_writer& writer) -> result<pruned> {
    writer.wait();
    SHARDMESH_TRY(prune_plan plan, writer.plan_prune(rules));
    prune_report report;
    if (!dry_run) report = writer.prune(plan);
    return pruned{std::move(plan), std::move(report)};
  };
  const pruned done = value_of(waited(py::none(), [&](watch&) { return shared.with(prune); }));
  return described(done, dry_run);
}

void wait_for_writer(shared_writer& shared) {
  const auto wait = [](run_writer& writer) { writer.wait(); };
  wait_for([&](watch&) { shared.with(wait); }, py::none());
}

// Returns the plan of a prune; needs no lock.
py::dict planned_prune(const py::str& folder, const py::str& names, const py::dict& keep) {
  const std::filesystem::path run = bytes_of(folder);
  const prune_options options{.names = to_names(names), .keep = to_rules(keep)};
  const pruned done = value_of(waited(py::none(), [&](watch&) -> result<pruned> {
    SHARDMESH_TRY(prune_plan plan, plan_prune(run, options));
    return pruned{std::move(plan), {}};
  }));
  return described(done, true);
}

py::list run_steps(const py::str& folder, const py::str& names) {
  py::list made;
  const std::vector<run_step> steps = value_of(list_steps(bytes_of(folder), to_names(names)));
  for (const run_step& step : steps) made.append(described(step));
  return made;
}

// (step or None, [Error of each newer step]); considers only steps below `below`. to_resume: tries steps that a resume
// has found damaged, too. end: see `to_limit`.
py::tuple newest_step(const py::str& folder, const py::str& names, bool to_resume, bool deep, int threads,
                      std::optional<std::int64_t> below, const py::object& end) {
  const std::filesystem::path run = bytes_of(folder);
  const step_names convention = to_names(names);
  step_check_options check{.deep = deep, .threads = threads, .within = to_limit(end)};
  const latest_step found = value_of(waited(py::none(), [&](watch& watching) {
    check.cancel = watching.stop.get_token();
    return to_resume ? detail::find_step_to_resume(run, convention, check, below)
                     : find_latest_step(run, convention, check, below);
  }));
  const py::object step = found.step ? py::object(described(*found.step)) : py::object(py::none());
  return py::make_tuple(step, to_python(found.skipped));
}

void check_first(const py::str& folder, const py::str& names) {
  check(check_first_step(bytes_of(folder), to_names(names)));
}

// None, or the Error of a damaged step. end: see `to_limit`.
py::object checked_step(const py::str& path, bool deep, int threads, const py::object& end) {
  const std::filesystem::path step = bytes_of(path);
  step_check_options options{.deep = deep, .threads = threads, .within = to_limit(end)};
  const step_check checked = waited(py::none(), [&](watch& watching) {
    options.cancel = watching.stop.get_token();
    return check_step(step, options);
  });
  if (checked.problem && detail::is_limit_error(*checked.problem)) raise(*checked.problem);
  return checked.problem ? to_python(*checked.problem) : py::object(py::none());
}

void set_pin(const py::str& folder, const py::str& names, std::int64_t step, bool pinned) {
  const std::filesystem::path run = bytes_of(folder);
  check(pinned ? pin_step(run, step, to_names(names)) : unpin_step(run, step, to_names(names)));
}

}  // namespace

void add_runs(py::module_& native) {
  py::class_<shared_writer>(native, "RunWriter")
      .def_static("open", &open_writer, py::arg("folder"), py::arg("names"), py::arg("incremental"), py::arg("keep"))
      .def("begin_save", &begin_save, py::arg("step"), py::arg("metric"), py::arg("overwrite"))
      .def("end_save", &end_save, py::arg("step"), py::arg("is_saved"))
      .def("note_resume", &note_resume, py::arg("step"))
      .def("prune", &prune_by_writer, py::arg("keep"), py::arg("dry_run"))
      .def("wait", &wait_for_writer)
      .def("take_notes", [](shared_writer& shared) { return lines(shared.take_notes()); });
  native.def("planned_prune", &planned_prune, py::arg("folder"), py::arg("names"), py::arg("keep"));
  native.def("run_steps", &run_steps, py::arg("folder"), py::arg("names"));
  native.def("newest_step", &newest_step, py::arg("folder"), py::arg("names"), py::arg("to_resume"), py::arg("deep"),
             py::arg("threads"), py::arg("below"), py::arg("end"));
  native.def("check_first_step", &check_first, py::arg("folder"), py::arg("names"));
  native.def("set_pin", &set_pin, py::arg("folder"), py::arg("names"), py::arg("step"), py::arg("pinned"));
  native.def("check_step", &checked_step, py::arg("path"), py::arg("deep"), py::arg("threads"), py::arg("end"));
}

}  // namespace bindings
