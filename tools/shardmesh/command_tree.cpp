// SPDX-License-Identifier: Apache-2.0
#include "command_tree.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <shardmesh/version.hpp>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace tool {
namespace {

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (true) {
    const std::size_t end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

// CLI11 returns the name and the check of a value in one text: "FORMAT:{dcp,hf}".
void read_type(std::string_view type, described_option& into) {
  const std::size_t colon = type.find(':');
  into.value = type.substr(0, colon);
  if (colon == std::string_view::npos) return;
  const std::string_view check = type.substr(colon + 1);
  if (check.starts_with('{') && check.ends_with('}')) into.choices = split(check.substr(1, check.size() - 2), ',');
}

described_option describe(const CLI::Option& option) {
  described_option made;
  for (const std::string& name : option.get_snames()) made.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) made.names.push_back("--" + name);
  made.text = option.get_description();
  made.group = option.get_group();
  made.fallback = option.get_default_str();
  made.is_required = option.get_required();
  const bool is_flag = option.get_items_expected_min() == 0;
  if (!is_flag || !option.get_type_name().empty()) read_type(option.get_type_name(), made);
  made.is_optional_value = is_flag && !made.choices.empty();
  if (made.is_optional_value) made.value = "VALUE";
  if (is_flag && made.choices.empty()) made.value.clear();
  made.is_repeatable = !is_flag && option.get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll;
  if (made.is_positional()) made.value = option.get_name();
  return made;
}

std::vector<described_option> options_of(const CLI::App& command) {
  std::vector<described_option> made;
  for (const CLI::Option* option : command.get_options())
    if (!option->get_group().empty()) made.push_back(describe(*option));
  return made;
}

}  // namespace

bool described_option::takes_path() const {
  constexpr std::string_view paths[] = {"FILE", "CKPT", "DIR"};
  return choices.empty() &&
         (is_positional() || std::find(std::begin(paths), std::end(paths), value) != std::end(paths));
}

std::string described_option::full_text() const {
  std::vector<std::string> facts;
  if (!choices.empty()) facts.push_back(fmt::format("one of: {}", fmt::join(choices, ", ")));
  if (!fallback.empty()) facts.push_back("default: " + fallback);
  if (is_repeatable) facts.emplace_back("repeatable");
  if (is_required && !is_positional()) facts.emplace_back("required");
  return facts.empty() ? text : fmt::format("{} ({})", text, fmt::join(facts, "; "));
}

bool described_command::takes_paths() const {
  return std::any_of(options.begin(), options.end(),
                     [](const auto& option) { return option.is_positional() && option.takes_path(); });
}

std::string described_command::summary() const {
  const std::string first = text.substr(0, text.find(". "));
  return first.ends_with('.') ? first.substr(0, first.size() - 1) : first;
}

std::vector<described_option> shared_options(const described_tool& tool, const described_command& command) {
  std::vector<described_option> made;
  for (const described_option& option : tool.options)
    if (std::none_of(command.options.begin(), command.options.end(),
                     [&](const described_option& own) { return own.names == option.names; }))
      made.push_back(option);
  return made;
}

described_command describe_command(const CLI::App& command) {
  const std::string examples = command.get_footer();
  return {command.get_name(), command.get_description(), options_of(command),
          examples.empty() ? std::vector<std::string>() : split(examples, '\n')};
}

described_tool describe(const CLI::App& app) {
  described_tool made{app.get_name(), SHARDMESH_VERSION, app.get_description(), options_of(app), {}};
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    if (!command->get_group().empty()) made.commands.push_back(describe_command(*command));
  return made;
}

}  // namespace tool
