// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>
module shardmesh.run;

import shardmesh.storage;
import :run_record;

namespace shardmesh {
namespace fs = std::filesystem;
namespace {

constexpr std::int64_t most_file_bytes = std::int64_t{64} << 20;
// {"version":1,"steps":{"100":{"saved":1.0,"metric":0.5}}} has three levels.
constexpr int most_levels = 4;
// Times after the year 9999 are damage; the clock's range is smaller than that of a number.
constexpr std::int64_t last_second = 9'200'000'000;

error damaged(const fs::path& file, std::string why) {
  return fail(errc::bad_format, "the record of the run is damaged: " + std::move(why))
      .with_file(file.string())
      .with_hint("remove the file; the metrics of earlier steps are then lost");
}

std::optional<std::int64_t> step_of(const std::string& text) {
  std::int64_t step = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), step);
  if (code != std::errc() || end != text.data() + text.size() || step < 0) return std::nullopt;
  return step;
}

std::optional<run_record::entry> entry_of(const nlohmann::json& value) {
  if (!value.is_object()) return std::nullopt;
  const auto saved = value.find("saved");
  if (saved == value.end() || !saved->is_number_integer()) return std::nullopt;
  const auto seconds = saved->get<std::int64_t>();
  if (seconds < 0 || seconds > last_second) return std::nullopt;
  run_record::entry made;
  made.saved = std::chrono::seconds(seconds);
  if (const auto metric = value.find("metric"); metric != value.end()) {
    if (!metric->is_number()) return std::nullopt;
    made.metric = metric->get<double>();
    if (!std::isfinite(*made.metric)) return std::nullopt;
  }
  if (const auto damaged = value.find("damaged"); damaged != value.end()) {
    if (!damaged->is_boolean()) return std::nullopt;
    made.is_damaged = damaged->get<bool>();
  }
  return made;
}

}  // namespace

result<run_record> run_record::read(const fs::path& run) {
  const fs::path file = run / run_record_name;
  std::error_code code;
  if (!fs::exists(fs::symlink_status(file, code))) return run_record();
  const auto bytes = read_file(file, most_file_bytes);
  if (!bytes && bytes.error().code != errc::io && bytes.error().code != errc::no_memory)
    return damaged(file, bytes.error().message);
  if (!bytes) return bytes.error();
  const auto* const text = reinterpret_cast<const char*>(bytes->data());
  const nlohmann::json parsed = nlohmann::json::parse(
      text, text + bytes->size(),
      [](int depth, nlohmann::json::parse_event_t, nlohmann::json&) { return depth <= most_levels; }, false);
  if (parsed.is_discarded() || !parsed.is_object()) return damaged(file, "it is not a JSON object");
  const auto version = parsed.find("version"), steps = parsed.find("steps");
  if (version == parsed.end() || !version->is_number_integer() || version->get<std::int64_t>() != 1)
    return damaged(file, "it has no \"version\": 1");
  if (steps == parsed.end() || !steps->is_object()) return damaged(file, "it has no object \"steps\"");
  run_record made;
  for (const auto& [name, value] : steps->items()) {
    const auto step = step_of(name);
    const auto one = entry_of(value);
    if (!step || !one) return damaged(file, fmt::format("the entry of step '{}' is malformed", escaped(name)));
    made.steps.insert_or_assign(*step, *one);
  }
  return made;
}

result<void> run_record::write(const fs::path& run, bool durable) const {
  nlohmann::json list = nlohmann::json::object();
  for (const auto& [step, one] : steps) {
    nlohmann::json value = nlohmann::json::object();
    value["saved"] = static_cast<std::int64_t>(one.saved.count());
    if (one.metric) value["metric"] = *one.metric;
    if (one.is_damaged) value["damaged"] = true;
    list[std::to_string(step)] = std::move(value);
  }
  nlohmann::json whole = nlohmann::json::object();
  whole["version"] = 1;
  whole["steps"] = std::move(list);
  return replace_text(run / run_record_name, whole.dump() + "\n", durable);
}

result<void> record_damage(const fs::path& run, step_names names, const std::set<std::int64_t>& damaged) {
  SHARDMESH_TRY(run_record record, run_record::read(run));
  SHARDMESH_TRY(const std::vector<run_step> steps, find_steps(run, names));
  bool is_new = false;
  for (const run_step& one : steps) {
    const bool is_damaged = damaged.contains(one.step);
    auto found = record.steps.find(one.step);
    if (is_damaged == (found != record.steps.end() && found->second.is_damaged)) continue;
    if (found == record.steps.end()) {  // another program saved the step
      const auto saved = std::chrono::duration_cast<std::chrono::seconds>(one.saved.time_since_epoch());
      found =
          record.steps.emplace(one.step, run_record::entry{.saved = std::max(std::chrono::seconds(0), saved)}).first;
    }
    found->second.is_damaged = is_damaged;
    is_new = true;
  }
  return is_new ? record.write(run, true) : result<void>();
}

result<void> replace_text(const fs::path& file, std::string_view text, bool durable) {
  SHARDMESH_TRY(staged_output out, staged_output::file(file, {.overwrite = true, .durable = durable}));
  SHARDMESH_TRY(const std::int32_t number, out.add_file(""));
  SHARDMESH_TRY(out.write(number, 0, std::as_bytes(std::span(text))));
  return out.commit();
}

}  // namespace shardmesh
