// SPDX-License-Identifier: Apache-2.0
#include "report.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>
#include <range/v3/view/take.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../../bindings/code_names.hpp"
#include "command.hpp"
#include "console.hpp"
#include "counted.hpp"
#include "json_writer.hpp"
#include "known_options.hpp"

import shardmesh;
import shardmesh.checkpoint;
import shardmesh.core;

namespace tool {
using namespace shardmesh;

namespace {

constexpr std::size_t most_lines = 100;

// The library's name of an option in errors of a code, and the flag that sets it.
struct spelling {
  errc code;
  std::string_view option, flag;
};
constexpr spelling hints[] = {
    {errc::destination_exists, "pass overwrite", "pass --force"},
    {errc::invalid_argument, "pass allow_unused", "pass --allow-unused"},
    {errc::invalid_argument, "pass names", "pass --names"},
    {errc::narrowing, "pass allow_narrowing", "pass --allow-narrowing"},
    {errc::shape_mismatch, "pass allow_shape_mismatch", "pass --allow-shape-mismatch"},
    {errc::unsupported, "pass skip_objects", "pass --skip-objects"},
    {errc::unsupported, "pass skip_unsupported to leave it out, or skip '",
     "pass --skip-unsupported to leave it out, or --skip '"},
    {errc::unsupported, "pass skip_unsupported", "pass --skip-unsupported"},
    {errc::unsupported, "pass item", "pass --item"},
    {errc::unsupported, "pass dtype", "pass --dtype"},
    {errc::unsupported, "pass allow_globals", "pass --allow-globals"},
    {errc::bad_format, "raise the limit factor", "raise --limit-factor"},
    {errc::missing_key, "pass components", "pass --components"},
    {errc::dtype_mismatch, "pass components", "pass --components"},
    {errc::shape_mismatch, "pass components", "pass --components"},
    {errc::out_of_bounds, "pass components", "pass --components"},
    {errc::overflow, "pass components", "pass --components"},
    {errc::bad_format, "pass components", "pass --components"},
    {errc::unsupported, "pass components", "pass --components"},
};
constexpr spelling messages[] = {
    {errc::missing_key, "the checkpoint given by like has", "the checkpoint given by --like has"},
    {errc::shape_mismatch, "the checkpoint given by like has", "the checkpoint given by --like has"},
    {errc::invalid_argument, "item and payload apply only", "--item and --payload apply only"},
    {errc::invalid_argument, "quantize applies only", "--quantize applies only"},
    {errc::invalid_argument, "max_shard_bytes applies only", "--max-shard-size applies only"},
    {errc::invalid_argument, "nest applies only", "--nest applies only"},
};
// For selection rules that match no key: "only 'RE' matches no key".
constexpr std::pair<std::string_view, std::string_view> rules[] = {
    {"only '", "--only '"},     {"skip '", "--skip '"},  {"strip_prefix '", "--strip-prefix '"},
    {"rename '", "--rename '"}, {"cast '", "--dtype '"},
};

void respell(std::string& text, errc code, std::span<const spelling> table) {
  for (const spelling& one : table)
    if (const std::size_t at = text.find(one.option); one.code == code && at != std::string::npos)
      return static_cast<void>(text.replace(at, one.option.size(), one.flag));
}

std::string_view code_name(const error& problem) {
  return bindings::code_names[static_cast<std::size_t>(problem.code)];
}

bool is_of_the_system(const error& problem) {
  return problem.sys != 0 || problem.code == errc::io || problem.code == errc::no_space;
}

// The status of an error without its others.
int own_status_of(const error& problem) {
  switch (problem.code) {
    case errc::io:
    case errc::no_space:
    case errc::cancelled:
    case errc::deadline_exceeded:
    case errc::communication:
      return not_completed;
    case errc::no_memory:  // the machine's memory, or a budget that the user set
      return problem.sys != 0 ? not_completed : wrong_usage;
    case errc::invalid_argument:
    case errc::destination_exists:
    case errc::narrowing:  // a cast that a rule requires
      return wrong_usage;
    default:
      return tool::problem;
  }
}

}  // namespace

error in_flags(error problem) {
  respell(problem.hint, problem.code, hints);
  problem.hint = without_unknown_options(problem.hint);
  respell(problem.message, problem.code, messages);
  const bool is_of_rule = problem.message.find("' matches ") != std::string::npos ||
                          problem.message.find("' casts nothing: ") != std::string::npos;
  if (problem.code == errc::invalid_argument && is_of_rule)
    for (const auto& [option, flag] : rules)
      if (problem.message.starts_with(option)) problem.message.replace(0, option.size(), flag);
  return problem;
}

std::string line_of(const error& problem) {
  return fmt::format("{} [{}]", to_string(in_flags(problem)), code_name(problem));
}

void print_problem(const error& problem) {
  error shown = problem;
  // An empty path, such as from an unset shell variable, is shown as ''.
  if (shown.file.empty() && is_of_the_system(shown))
    shown = std::move(shown).with_file(subject().empty() ? "''" : subject());
  print_problem(line_of(shown), json_text([&](json_writer& out) { write(out, shown); }));
}

void print_warning(const error& warning) {
  print_line("warning: " + line_of(warning));
}

void print_problems(const std::vector<error>& problems, std::int64_t more) {
  for (const error& problem : problems | ranges::views::take(most_lines)) print_problem(problem);
  more += static_cast<std::int64_t>(problems.size() - std::min(problems.size(), most_lines));
  print_more_problems(more);
}

void print_notes(const std::vector<std::string>& notes) {
  for (const std::string& note : notes | ranges::views::take(most_lines)) print_line("note: " + escaped(note));
  if (notes.size() > most_lines)
    print_line(fmt::format("note: ... and {}", counted(notes.size() - most_lines, "more note")));
}

int status_of(const error& problem) {
  return std::max(own_status_of(problem), status_of(problem.others));
}

int status_of(const std::vector<error>& problems) {
  int status = done;
  for (const error& one : problems) status = std::max(status, status_of(one));
  return status;
}

int status_of_findings(const std::vector<error>& problems) {
  const int status = status_of(problems);
  return status == wrong_usage ? int{tool::problem} : status;
}

int report(const error& problem) {
  print_problems(problem.problems(), problem.more);
  return status_of(problem);
}

int refuse(const error& problem) {
  print_problems(problem.problems(), problem.more);
  return wrong_usage;
}

void write_box(json_writer& out, const box& b) {
  out.key("offsets").list(b.offsets).key("sizes").list(b.sizes);
}

void write(json_writer& out, const error& given, std::string_view line) {
  const error problem = in_flags(given);
  out.begin_object()
      .member("code", code_name(problem))
      .member("message", problem.message)
      .member("key", problem.key)
      .member("file", problem.file);
  out.key("ranks").list(problem.ranks).key("boxes").begin_list();
  for (const box& b : problem.boxes) {
    out.begin_object();
    write_box(out, b);
    out.end_object();
  }
  out.end_list()
      .member("expected", problem.expected)
      .member("found", problem.found)
      .member("hint", problem.hint)
      .member("text", line.empty() ? line_of(given) : std::string(line))
      .end_object();
}

void write(json_writer& out, const std::vector<error>& problems) {
  out.begin_list();
  for (const error& problem : problems) write(out, problem);
  out.end_list();
}

void write_problems(json_writer& out, const std::vector<error>& problems, std::int64_t more) {
  out.key("problems").begin_list();
  for (const error& problem : problems) {
    for (const error& one : problem.problems()) write(out, one);
    more += problem.more;
  }
  out.end_list().member("more_problems", more);
}

void write(json_writer& out, const global_report& globals) {
  out.begin_list();
  for (const named_global& name : globals.names)
    out.begin_object()
        .member("file", name.file)
        .member("key", name.key)
        .member("name", name.name)
        .member("harmless", name.harmless)
        .member("dangerous", name.dangerous)
        .member("count", name.count)
        .end_object();
  out.end_list();
}

std::string globals_text(const global_report& globals) {
  struct place {
    const named_global* first = nullptr;
    std::int64_t count = 0;
  };
  std::map<std::string_view, place> by_name;
  std::size_t harmless = 0;
  for (const named_global& name : globals.names) {
    if (name.harmless) {
      ++harmless;
      continue;
    }
    place& at = by_name[name.name];
    if (at.first == nullptr) at.first = &name;
    at.count += name.count;
  }
  std::string text;
  if (harmless > 0) text = fmt::format("  names       {} harmless in pickles, of PyTorch's own data\n", harmless);
  for (const auto& [name, at] : by_name)
    text += fmt::format("  {}   {} ({}{}{}{})\n", at.first->dangerous ? "dangerous" : "not data ", escaped(name),
                        escaped(at.first->file), at.first->key.empty() ? "" : ": ", escaped(at.first->key),
                        at.count == 1 ? "" : fmt::format("; {} times", at.count));
  if (globals.unnamed > 0) text += fmt::format("  not data    ... and {} more\n", globals.unnamed);
  return text;
}

struct progress_bar::state {
  using clock = std::chrono::steady_clock;
  std::int64_t total = 0;
  std::atomic<std::int64_t> moved{0};
  bool on_terminal = ::isatty(STDERR_FILENO) == 1;
  clock::time_point start = clock::now();
  std::mutex lock;
  clock::time_point shown{};
  bool drawn = false;
};

progress_bar::progress_bar(std::int64_t total_bytes) : state_(std::make_unique<state>()) {
  state_->total = total_bytes;
}

progress_bar::~progress_bar() {
  if (state_->drawn) fmt::print(stderr, "\r\033[K");
}

void progress_bar::advance(std::int64_t bytes) {
  const std::int64_t moved = state_->moved += bytes;
  if (!state_->on_terminal || state_->total <= 0) return;
  const auto now = state::clock::now();
  const std::unique_lock guard(state_->lock, std::try_to_lock);
  if (!guard || now - state_->start < std::chrono::seconds(1) || now - state_->shown < std::chrono::milliseconds(100))
    return;
  state_->shown = now;
  state_->drawn = true;
  constexpr int width = 30;
  const auto filled = static_cast<int>(std::min<std::int64_t>(moved, state_->total) * width / state_->total);
  fmt::print(stderr, "\r[{}{}] {} of {}\033[K", std::string(static_cast<std::size_t>(filled), '#'),
             std::string(static_cast<std::size_t>(width - filled), '.'), human_bytes(moved),
             human_bytes(state_->total));
}

}  // namespace tool
