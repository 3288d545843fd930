// SPDX-License-Identifier: Apache-2.0
// `shardmesh run`: lists the steps of a training run, finds the newest good one, plans its load, verifies, compares,
// flattens, pins, and prunes them.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "action_options.hpp"
#include "command.hpp"
#include "comparing.hpp"
#include "console.hpp"
#include "counted.hpp"
#include "json_writer.hpp"
#include "opening.hpp"
#include "output_file.hpp"
#include "report.hpp"
#include "resume_plan.hpp"

#include <shardmesh/try.hpp>

import shardmesh;
import shardmesh.core;
import shardmesh.run;
import shardmesh.storage;

namespace tool {
namespace {

using namespace shardmesh;

struct arguments {
  std::string action, folder, names;
  std::vector<std::int64_t> steps;
  keep_rules keep;
  std::optional<std::int64_t> days;
  bool json = false, deep = false, dry_run = false;
  resume_plan_arguments resuming;
};

// One line of the table: a step, whether it is good, and why a prune keeps it.
struct shown_step {
  run_step step;
  std::int64_t size_bytes = 0;
  std::optional<error> problem{};
  std::vector<std::string> kept_by{};  // empty: a prune by these rules deletes the step
};

// A process that writes the run may prune a step while it is checked here. That is no damage.
bool is_gone(const std::filesystem::path& step) {
  std::error_code code;
  return std::filesystem::symlink_status(step, code).type() == std::filesystem::file_type::not_found;
}

std::string time_text(std::chrono::system_clock::time_point time) {
  return fmt::format("{:%Y-%m-%d %H:%M:%S}", fmt::gmtime(std::chrono::system_clock::to_time_t(time)));
}

void write(json_writer& out, const shown_step& one) {
  out.begin_object()
      .member("step", one.step.step)
      .member("path", one.step.path.string())
      .member("saved", time_text(one.step.saved))
      .member("bytes", one.size_bytes)
      .key("metric");
  one.step.metric ? out.raw(fmt::format("{}", *one.step.metric)) : out.null();
  out.member("pinned", one.step.is_pinned).member("good", !one.problem).key("kept_by").list(one.kept_by).end_object();
}

std::string line_of(const shown_step& one) {
  std::string kept;
  for (const std::string& reason : one.kept_by) kept += (kept.empty() ? "" : ", ") + escaped(reason);
  return fmt::format("{:>10}  {}  {:>10}  {:>10}  {:<7}  {}\n", one.step.step, time_text(one.step.saved),
                     human_bytes(one.size_bytes), one.step.metric ? fmt::format("{:.4g}", *one.step.metric) : "-",
                     one.problem ? "damaged" : "good", kept.empty() ? "-" : kept);
}

class command_run {
 public:
  command_run(const arguments& given, const common_options& common) : given_(given), common_(common) {}

  int run() {
    works_on(given_.folder);
    const auto named = find_names();
    // These have documents of their own.
    if (given_.action == "diff") return named ? compare() : report(named.error());
    if (given_.action == "resume-plan") return named ? plan_resume() : report(named.error());
    if (!named)
      fails(named.error());
    else if (const auto acted = act(); !acted)
      fails(acted.error());
    if (given_.json) print_document();
    return status_;
  }

 private:
  result<void> find_names() {
    if (is_url(given_.folder))
      return fail(errc::unsupported, "a run is a local folder").with_file(printable_url(given_.folder));
    SHARDMESH_TRY(detail::check_not_shortened(given_.folder));
    if (given_.names.empty()) {
      SHARDMESH_TRY(options_.names, find_step_names(given_.folder));
    } else {
      options_.names = step_names_of(given_.names).value_or(step_names::step);
    }
    return {};
  }

  std::string path_of(std::int64_t step) const {
    return (std::filesystem::path(given_.folder) / folder_name(step, options_.names)).string();
  }

  int compare() const {
    return compare_checkpoints(path_of(given_.steps[0]), path_of(given_.steps[1]), given_.json, common_);
  }

  result<void> act() {
    SHARDMESH_TRY(check_time());
    options_.keep = given_.keep;
    if (given_.days) options_.keep.since = std::chrono::system_clock::now() - std::chrono::hours(24) * *given_.days;
    if (given_.action == "list") return list();
    if (given_.action == "latest") return latest();
    if (given_.action == "verify") return verify_steps();
    if (given_.action == "prune") return prune();
    return given_.action == "flatten" ? flatten() : set_pin();
  }

  void fails(const error& problem) {
    for (const error& one : problem.problems()) {
      print_problem(one);
      problems_.push_back(one);
    }
    print_more_problems(problem.more);
    more_problems_ += problem.more;
    status_ = std::max(status_, status_of(problem));
  }

  // Fails once the time limit of the command has passed.
  result<void> check_time() const {
    auto checked = detail::check_current_call();
    if (!checked) return std::move(checked).error().with_file(given_.folder);
    return {};
  }

  // Plans a prune by the given rules. Its checks know no limit, so that of the command is checked after them.
  result<prune_plan> plan_by_rules() {
    SHARDMESH_TRY(prune_plan plan, plan_prune(given_.folder, options_));
    SHARDMESH_TRY(check_time());
    show(plan);
    note(plan.notes);
    return plan;
  }

  // The steps as a prune by the given rules sees them, ascending.
  void show(const prune_plan& plan) {
    for (const kept_step& one : plan.kept)
      steps_.push_back({one.step, stored_bytes_of_step(one.step.path), one.problem, one.reasons});
    for (const deleted_step& one : plan.deleted) steps_.push_back({one.step, one.size_bytes});
    std::sort(steps_.begin(), steps_.end(),
              [](const shown_step& a, const shown_step& b) { return a.step.step < b.step.step; });
  }

  result<void> list() {
    SHARDMESH_TRY(plan_by_rules());
    SHARDMESH_TRY(check_shown());
    std::erase_if(steps_, [](const shown_step& one) { return one.problem && is_gone(one.step.path); });
    if (given_.json) return {};
    if (steps_.empty()) print(fmt::format("{}: no steps\n", escaped(given_.folder)));
    if (!steps_.empty())
      print(fmt::format("{:>10}  {:<19}  {:>10}  {:>10}  {:<7}  {}\n", "step", "saved (UTC)", "size", "metric", "state",
                        "kept by"));
    for (const shown_step& one : steps_) print(line_of(one));
    std::vector<std::string> damage;
    for (const shown_step& one : steps_)
      if (one.problem) damage.push_back(to_string(in_flags(*one.problem)));
    note(damage);
    return {};
  }

  // With --deep, checks every byte of the steps that pass the cheap check. A time limit that ends a check is no damage.
  result<void> check_shown() {
    for (shown_step& one : steps_) {
      if (given_.deep && !one.problem) one.problem = check_step(one.step.path, checks(true)).problem;
      if (!one.problem || !detail::is_limit_error(*one.problem)) continue;
      error ended = *std::move(one.problem);
      steps_.clear();  // the rest is not checked
      return ended;
    }
    return {};
  }

  // Finds the newest good step. Notes say why newer ones are skipped.
  result<latest_step> newest_good() {
    SHARDMESH_TRY(latest_step found, find_latest_step(given_.folder, options_.names, checks(given_.deep)));
    std::vector<std::string> skipped;
    for (const error& one : found.skipped) skipped.push_back(to_string(in_flags(one)));
    note(skipped);
    if (!found.step)
      return fail(errc::incomplete_save, "the run has no good step")
          .with_file(given_.folder)
          .with_hint("pass --names if the folders of the steps have other names");
    return found;
  }

  int plan_resume() {
    const result<placed_mesh> to = parse_resuming_mesh(given_.resuming);
    if (!to) return refuse(to.error());
    const result<latest_step> found = newest_good();
    return found ? print_resume_plan(*found, *to, given_.resuming, common_) : report(found.error());
  }

  result<void> latest() {
    SHARDMESH_TRY(const latest_step found, newest_good());
    steps_.push_back({*found.step, stored_bytes_of_step(found.step->path)});
    if (!given_.json) print(fmt::format("{}\n", escaped(found.step->path.string())));
    return {};
  }

  result<void> verify_steps() {
    SHARDMESH_TRY(std::vector<run_step> steps, list_steps(given_.folder, options_.names));
    std::int64_t good = 0;
    for (run_step& one : steps) {
      step_check checked = check_step(one.path, checks(true));
      if (checked.problem && detail::is_limit_error(*checked.problem)) return *std::move(checked.problem);
      if (checked.problem && is_gone(one.path)) continue;
      if (checked.problem)
        fails(*checked.problem);
      else
        ++good;
      const std::int64_t size_bytes = stored_bytes_of_step(one.path);
      steps_.push_back({std::move(one), size_bytes, std::move(checked.problem)});
    }
    if (!given_.json && status_ == done)
      print(fmt::format("{}: ok: {}\n", escaped(given_.folder), counted(good, "good step")));
    return {};
  }

  result<void> prune() {
    SHARDMESH_TRY(const prune_plan plan, plan_by_rules());
    if (given_.dry_run) {
      for (const deleted_step& one : plan.deleted) would_remove(one.step.path, one.size_bytes);
      for (const leftover& one : plan.leftovers) would_remove(one.path, one.size_bytes);
      report_.steps = static_cast<std::int64_t>(plan.deleted.size());
      report_.leftovers = static_cast<std::int64_t>(plan.leftovers.size());
      report_.bytes = plan.deleted_bytes();
    } else {
      SHARDMESH_TRY(report_, prune_run(plan));
      for (const error& one : report_.problems) fails(one);
    }
    if (!given_.json)
      print(fmt::format("{} {}, {}; {} kept\n", given_.dry_run ? "would remove" : "removed",
                        enumerated({counted(report_.steps, "step"), counted_if_any(report_.leftovers, "leftover")}),
                        human_bytes(report_.bytes), counted(plan.kept.size(), "step")));
    return {};
  }

  result<void> set_pin() {
    const std::int64_t step = given_.steps.front();
    const bool pins = given_.action == "pin";
    SHARDMESH_TRY(pins ? pin_step(given_.folder, step, options_.names)
                       : unpin_step(given_.folder, step, options_.names));
    show(step);
    if (!given_.json) print(fmt::format("{}: {}\n", escaped(path_of(step)), pins ? "pinned" : "not pinned"));
    return {};
  }

  result<void> flatten() {
    const std::int64_t step = given_.steps.front();
    SHARDMESH_TRY(flattened_, flatten_step(given_.folder, step, options_.names, common_.threads));
    note(flattened_.notes);
    show(step);
    if (given_.json) return {};
    if (flattened_.references.empty())
      print(fmt::format("{}: refers to no other step\n", escaped(path_of(step))));
    else
      print(fmt::format("{}: flattened: {} of {} copied\n", escaped(path_of(step)),
                        human_bytes(flattened_.copied_bytes), escaped(enumerated(flattened_.references))));
    return {};
  }

  // Adds a step to the document. The action has succeeded, and a damaged record of metrics does not change that.
  void show(std::int64_t step) {
    const auto listed = list_steps(given_.folder, options_.names);
    if (!listed) return note({to_string(in_flags(listed.error()))});
    for (const run_step& one : *listed)
      if (one.step == step) steps_.push_back({one, stored_bytes_of_step(one.path), check_step(one.path).problem});
  }

  void would_remove(const std::filesystem::path& path, std::int64_t size_bytes) const {
    if (!given_.json) print(fmt::format("would remove {} ({})\n", escaped(path.string()), human_bytes(size_bytes)));
  }

  void note(const std::vector<std::string>& lines) {
    print_notes(lines);
    notes_.insert(notes_.end(), lines.begin(), lines.end());
  }

  step_check_options checks(bool deep) const {
    return {.deep = deep, .threads = common_.threads, .within = time_limit_of(common_)};
  }

  void print_document() const {
    json_writer out;
    out.begin_object().member("ok", problems_.empty()).key("steps").begin_list();
    for (const shown_step& one : steps_) write(out, one);
    out.end_list()
        .member("dry_run", given_.dry_run)
        .member("removed_steps", report_.steps)
        .member("removed_leftovers", report_.leftovers)
        .member("removed_bytes", report_.bytes)
        .key("copied_from")
        .list(flattened_.references)
        .member("copied_bytes", flattened_.copied_bytes)
        .key("notes")
        .list(notes_);
    write_problems(out, problems_, more_problems_);
    out.end_object().finish();
  }

  const arguments& given_;
  const common_options& common_;
  prune_options options_;
  std::vector<shown_step> steps_;
  std::vector<std::string> notes_;
  std::vector<error> problems_;
  std::int64_t more_problems_ = 0;
  prune_report report_;
  flatten_report flattened_;
  int status_ = done;
};

// How many steps an action takes.
std::size_t steps_of(const std::string& action) {
  if (action == "diff") return 2;
  return action == "pin" || action == "unpin" || action == "flatten" ? 1 : 0;
}

const std::vector<action_options>& options_of_actions() {
  static const std::vector<action_options> all{
      {{"--keep-last", "--keep-every", "--keep-best", "--highest-is-best", "--keep-days"}, {"list", "prune"}},
      {{"--mesh", "--place", "--default", "--svg", "--force"}, {"resume-plan"}},
      {{"--deep"}, {"list", "latest", "resume-plan"}},
      {{"--dry-run"}, {"prune"}}};
  return all;
}

int run(const CLI::App& command, const arguments& given, const common_options& common) {
  if (given.action == "diff") set_failure_members("diff");
  if (given.action == "resume-plan") set_failure_members("run resume-plan");
  if (const auto used = check_action_options(command, given.action, options_of_actions()); !used)
    return refuse(used.error());
  if (given.action == "resume-plan" && given.resuming.mesh.empty())
    return refuse(
        fail(errc::invalid_argument, "'run resume-plan' needs the mesh that resumes").with_hint("pass --mesh"));
  const std::size_t expected = steps_of(given.action);
  if (given.steps.size() != expected)
    return refuse(fail(errc::invalid_argument, fmt::format("'run {}' takes another number of steps", given.action))
                      .with_values(fmt::format("{}", expected), fmt::format("{}", given.steps.size())));
  return command_run(given, common).run();
}

void add_rules(CLI::App& command, arguments& given) {
  const auto add = [&](const std::string& name, std::int64_t& into, const std::string& help) {
    command.add_option(name, into, help)->type_name("N")->transform(whole_number(1));
  };
  add("--keep-last", given.keep.last, "With list and prune: keep the newest N good steps");
  add("--keep-every", given.keep.every, "With list and prune: keep each step whose number is a multiple of N");
  add("--keep-best", given.keep.best, "With list and prune: keep the N steps with the lowest metric");
  command
      .add_flag("--highest-is-best", given.keep.highest_is_best,
                "With --keep-best: keep the steps with the highest metric")
      ->needs("--keep-best");
  command.add_option("--keep-days", given.days, "With list and prune: keep the steps of the last N days")
      ->type_name("N")
      ->transform(whole_number(0, 36500));
}

void add_resuming(CLI::App& command, resume_plan_arguments& into) {
  command.add_option("--mesh", into.mesh, "With resume-plan: the mesh that resumes, such as 3 or dp=2,tp=4")
      ->type_name("MESH");
  command
      .add_option("--place", into.places,
                  "With resume-plan: placements of the keys that match RE, one per mesh dimension; the first rule that "
                  "matches a key decides")
      ->type_name("RE=S(0),R")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command.add_option("--default", into.defaults, "With resume-plan: placements of the keys that no rule matches")
      ->type_name("R,R")
      ->default_str("R everywhere");
  command.add_option("--svg", into.svg, "With resume-plan: write a picture to FILE")
      ->type_name("FILE")
      ->check(some_path());
  add_force_option(command, into.force, "--svg");
}

}  // namespace

void add_run(CLI::App& app, invocation& call) {
  auto given = std::make_shared<arguments>();
  CLI::App* command =
      app.add_subcommand("run",
                         "List the steps of a training run, find the newest good one, plan its load, verify, compare, "
                         "flatten, pin, and prune them");
  command->footer(
      "shardmesh run list RUN\n"
      "shardmesh run resume-plan RUN --mesh dp=2,tp=4 --place '.*=R,S(0)'\n"
      "shardmesh run prune RUN --keep-last 3 --keep-every 1000 --dry-run");
  command
      ->add_option("ACTION", given->action,
                   "list: the steps, and which of them the rules keep. latest: the folder of the newest good step. "
                   "resume-plan: the files and bytes of that step that each rank of a mesh needs. "
                   "verify: check every byte. prune: delete the steps that no rule keeps, and leftovers. pin STEP: let "
                   "no prune delete the step. unpin STEP: let prunes delete it. diff STEP STEP: compare two steps, as "
                   "the command diff does. flatten STEP: copy the data of other steps that STEP needs, so that they "
                   "can be pruned")
      ->required()
      ->check(one_of({"list", "latest", "resume-plan", "verify", "prune", "pin", "unpin", "diff", "flatten"}));
  command->add_option("DIR", given->folder, "The folder of the run")->required()->check(some_path());
  command->add_option("STEP", given->steps, "With pin, unpin, flatten, and diff: the number of a step")
      ->transform(whole_number());
  command
      ->add_option("--names", given->names,
                   "Names of the steps' folders: step-100 (torchtitan), checkpoint-100 (Hugging Face), or iter_0000100 "
                   "(Megatron)")
      ->type_name("NAMES")
      ->default_str("those that are found")
      ->check(one_of({"step", "checkpoint", "iter"}));
  add_rules(*command, *given);
  add_resuming(*command, given->resuming);
  command->add_flag("--deep", given->deep, "With list, latest, and resume-plan: compare every checksum");
  command->add_flag("--dry-run", given->dry_run, "With prune: show what would be deleted, but delete nothing");
  command->add_flag("--json", given->json, "Print one JSON document");
  command->callback([command, given, &call] {
    given->resuming.json = given->json;
    call.status = run(*command, *given, call.common);
  });
}

}  // namespace tool
