// SPDX-License-Identifier: Apache-2.0
// Wrong usage reported in one plain line, and the values that options take.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "command.hpp"
#include "report.hpp"

import shardmesh;
import shardmesh.core;
import shardmesh.checkpoint_core;

namespace tool {

using namespace shardmesh;

namespace {

// The argument, or the value of an option, may be a URL with secrets.
std::string in_quotes(std::string_view text) {
  const std::size_t sign = text.starts_with('-') ? text.find('=') : std::string_view::npos;
  const std::size_t value = sign == std::string_view::npos ? 0 : sign + 1;
  const std::string shown = std::string(text.substr(0, value)) + printable_url(text.substr(value));
  return fmt::format("'{}'", shortened(escaped(shown), 200));
}

template <class Number>
bool parse(std::string_view text, Number& number) {
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  return code == std::errc{} && end == text.data() + text.size();
}

}  // namespace

namespace {

// Returns " (did you mean ...?)" for a similar command, or a similar option of the command.
std::string suggestion(const CLI::App& app, const std::string& unknown, bool is_option) {
  std::vector<std::string> names;
  const auto add_options = [&](const CLI::App& of) {
    for (const CLI::Option* option : of.get_options())
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  };
  if (is_option) {
    add_options(app);
    for (const CLI::App* command : app.get_subcommands()) add_options(*command);
  } else {
    for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
      names.push_back(command->get_name());
  }
  const std::string meant = unknown.substr(0, is_option ? unknown.find('=') : std::string::npos);
  const std::vector<std::string_view> views(names.begin(), names.end());
  const auto near = nearest_key(views, meant);
  return near ? fmt::format("; {}", did_you_mean(near)) : std::string();
}

// CLI11's texts about the number of an option's values, in plain words: "--only: 1 required RE missing".
std::string number_of_values(std::string_view text) {
  const std::size_t end = text.find(':');
  if (end == std::string_view::npos) return std::string(text);
  const bool are_too_many = text.substr(end).starts_with(": At Most");
  return std::string(text.substr(0, end)) + (are_too_many ? " is given more than once" : " needs a value");
}

// The same about options that exclude each other: "--key excludes --only".
std::string excluded_option(std::string text) {
  constexpr std::string_view excludes = " excludes ";
  if (const std::size_t at = text.find(excludes); at != std::string::npos)
    text.replace(at, excludes.size(), " cannot be used with ");
  return text;
}

}  // namespace

int usage_error(const CLI::App& app, const CLI::ParseError& problem) {
  const std::vector<CLI::App*> commands = app.get_subcommands();
  const std::string who = commands.empty() ? "shardmesh" : "shardmesh " + commands.front()->get_name();
  std::vector<std::string> unknown = app.remaining(true);
  // Arguments after "--" are never options, even if they begin with "-".
  const bool has_mark = std::erase(unknown, "--") > 0;
  std::string what = escaped(problem.what());
  // CLI11 reports a missing argument before an unknown one.
  const auto is = [&](CLI::ExitCodes code) { return problem.get_exit_code() == static_cast<int>(code); };
  const bool is_about_arguments = is(CLI::ExitCodes::RequiredError) || is(CLI::ExitCodes::ExtrasError);
  if (is_about_arguments && !unknown.empty()) {
    const std::string& first = unknown.front();
    const bool is_option = !has_mark && first.starts_with('-') && first.size() > 1;
    what = fmt::format("{} {}",
                       is_option          ? "unknown option"
                       : commands.empty() ? "unknown command"
                                          : "unexpected argument",
                       in_quotes(first));
    if (is_option || commands.empty()) what += suggestion(app, first, is_option);
    if (has_mark && first.starts_with('-')) what += "; put options before --";
  } else if (commands.empty() && is(CLI::ExitCodes::RequiredError)) {
    what = "a command is missing";
  } else if (is(CLI::ExitCodes::ArgumentMismatch)) {
    what = number_of_values(what);
  } else if (is(CLI::ExitCodes::ExcludesError)) {
    what = excluded_option(what);
  }
  return refuse(fail(errc::invalid_argument, fmt::format("{}: {} (see '{} --help')", who, what, who)));
}

CLI::Validator whole_number(std::int64_t least, std::int64_t most) {
  const auto check = [least, most](std::string& text) -> std::string {
    std::int64_t number = 0;
    if (parse(text, number) && number >= least && number <= most) {
      text = fmt::format("{}", number);
      return {};
    }
    const std::string bounds =
        most == INT64_MAX ? fmt::format("of at least {}", least) : fmt::format("from {} to {}", least, most);
    return fmt::format("{} is not a whole number {}", in_quotes(text), bounds);
  };
  return {check, ""};
}

CLI::Validator one_of(const std::vector<std::string>& values) {
  const auto check = [values](std::string& text) -> std::string {
    if (std::find(values.begin(), values.end(), text) != values.end()) return {};
    const std::vector<std::string_view> views(values.begin(), values.end());
    const std::string hint = did_you_mean(nearest_key(views, text));
    return fmt::format("{} is not one of {}{}{}", in_quotes(text), fmt::join(values, ", "), hint.empty() ? "" : "; ",
                       hint);
  };
  return {check, fmt::format("{{{}}}", fmt::join(values, ","))};
}

CLI::Validator tolerance() {
  const auto check = [](std::string& text) -> std::string {
    double number = 0;
    if (parse(text, number) && number >= 0 && std::isfinite(number)) return {};
    return in_quotes(text) + " is not a finite number of at least 0";
  };
  return {check, ""};
}

CLI::Validator some_path() {
  return {[](std::string& text) -> std::string { return text.empty() ? "'' is an empty path" : ""; }, ""};
}

}  // namespace tool
