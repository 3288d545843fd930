// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <array>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
module shardmesh.run;

namespace shardmesh {
namespace fs = std::filesystem;
namespace {

constexpr std::array all_names{step_names::step, step_names::checkpoint, step_names::iteration};

std::string_view prefix(step_names names) {
  switch (names) {
    case step_names::step:
      return "step-";
    case step_names::checkpoint:
      return "checkpoint-";
    case step_names::iteration:
      break;
  }
  return "iter_";
}

using named_folder = std::pair<step_names, std::string>;

// Returns the first step of a run, of any convention. Steps of two conventions are an error.
result<std::optional<named_folder>> find_any_step(const fs::path& run) {
  std::optional<named_folder> found;
  std::error_code code;
  for (fs::directory_iterator at(run, code), end; !code && at != end; at.increment(code)) {
    const std::string folder = at->path().filename().string();
    for (const step_names names : all_names) {
      if (!step_of_folder(folder, names)) continue;
      if (found && found->first != names)
        return fail(errc::invalid_argument, "the folder has steps of two naming conventions")
            .with_file(run.string())
            .with_values(found->second, folder)
            .with_hint("pass names: step, checkpoint, or iter");
      if (!found) found.emplace(names, folder);
    }
  }
  if (code) return fail_sys(code.value(), "cannot list", run.string());
  return found;
}

}  // namespace

std::string_view name(step_names names) {
  switch (names) {
    case step_names::step:
      return "step";
    case step_names::checkpoint:
      return "checkpoint";
    case step_names::iteration:
      break;
  }
  return "iter";
}

std::optional<step_names> step_names_of(std::string_view text) {
  for (const step_names names : all_names)
    if (text == name(names)) return names;
  return std::nullopt;
}

std::string folder_name(std::int64_t step, step_names names) {
  if (names == step_names::iteration) return fmt::format("{}{:07}", prefix(names), step);
  return fmt::format("{}{}", prefix(names), step);
}

std::optional<std::int64_t> step_of_folder(std::string_view folder, step_names names) {
  const std::string_view before = prefix(names);
  if (!folder.starts_with(before)) return std::nullopt;
  const std::string_view digits = folder.substr(before.size());
  std::int64_t step = 0;
  const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (code != std::errc() || end != digits.data() + digits.size() || step < 0) return std::nullopt;
  if (folder_name(step, names) != folder) return std::nullopt;
  return step;
}

result<step_names> find_step_names(const fs::path& run) {
  SHARDMESH_TRY(const std::optional<named_folder> found, find_any_step(run));
  return found ? found->first : step_names::step;
}

result<void> check_first_step(const fs::path& run, step_names names) {
  SHARDMESH_TRY(const std::optional<named_folder> found, find_any_step(run));
  if (!found || found->first == names) return {};
  return fail(errc::invalid_argument, "the run has no step with the names that it uses, but one with others")
      .with_file(run.string())
      .with_values("names such as " + folder_name(100, names), found->second)
      .with_hint(fmt::format("pass {} as the names of the steps, or choose another folder", name(found->first)));
}

}  // namespace shardmesh
