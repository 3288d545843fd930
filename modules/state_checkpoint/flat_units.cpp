// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <range/v3/view/enumerate.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

module shardmesh.state_checkpoint;

import shardmesh.storage;

namespace shardmesh {
namespace {

using nlohmann::json;

error wrong(const std::string& where, std::string expected, const json& found) {
  std::string text = found.dump();
  constexpr std::size_t shown = 60;
  if (text.size() > shown) text = text.substr(0, shown) + "...";
  return fail(errc::bad_format, fmt::format("{} is not valid in a flat spec", where))
      .with_values(std::move(expected), std::move(text));
}

result<void> check_members(const json& value, const std::string& where, std::initializer_list<std::string_view> known) {
  if (!value.is_object()) return wrong(where, "an object", value);
  for (const auto& [name, member] : value.items())
    if (std::find(known.begin(), known.end(), name) == known.end())
      return fail(errc::bad_format, fmt::format("{} has a member that a flat spec does not have", where))
          .with_values(fmt::format("{}", fmt::join(known, ", ")), name);
  return {};
}

result<std::string> text_of(const json& value, const std::string& where, const char* member) {
  if (!value.contains(member)) return wrong(where, fmt::format("a member {}", member), value);
  if (!value[member].is_string()) return wrong(where + "." + member, "a string", value[member]);
  return value[member].get<std::string>();
}

result<extents> extents_of(const json& value, const std::string& where) {
  if (!value.is_array() || value.size() > max_rank) return wrong(where, "a list of at most 16 sizes", value);
  extents made;
  for (const json& v : value) {
    if (!v.is_number_unsigned() || v.get<std::uint64_t>() > std::numeric_limits<std::int64_t>::max())
      return wrong(where, "sizes of at least 0", value);
    made.push_back(v.get<std::int64_t>());
  }
  return made;
}

result<std::int64_t> number_of(const json& value, const std::string& where, const char* member, std::int64_t otherwise,
                               std::int64_t least, std::int64_t most) {
  if (!value.contains(member)) return otherwise;
  const json& found = value[member];
  if (!found.is_number_unsigned() || found.get<std::uint64_t>() < static_cast<std::uint64_t>(least) ||
      found.get<std::uint64_t>() > static_cast<std::uint64_t>(most))
    return wrong(where + "." + member, fmt::format("a whole number from {} to {}", least, most), found);
  return found.get<std::int64_t>();
}

// Returns the list under a member; empty if it is missing and optional.
result<json> list_of(const json& value, const std::string& where, const char* member, bool is_needed) {
  if (!value.contains(member) && !is_needed) return json::array();
  if (!value.contains(member)) return wrong(where, fmt::format("a member {}", member), value);
  if (!value[member].is_array()) return wrong(where + "." + member, "a list", value[member]);
  return value[member];
}

result<flat_unit> unit_of(const json& value, const std::string& where) {
  SHARDMESH_TRY(check_members(value, where, {"key", "prefix", "alignment", "ranks", "parameters", "shared"}));
  flat_unit unit;
  SHARDMESH_TRY(unit.key, text_of(value, where, "key"));
  unit.has_default_prefix = !value.contains("prefix");
  if (!unit.has_default_prefix) {
    SHARDMESH_TRY(unit.prefix, text_of(value, where, "prefix"));
  } else {
    // The default prefix is the part before "_flat_param"; for a key of another form, it is the whole key.
    const bool is_usual = unit.key == flat_parameter_key || unit.key.ends_with(fmt::format(".{}", flat_parameter_key));
    unit.prefix = is_usual ? unit.key.substr(0, unit.key.size() - flat_parameter_key.size()) : unit.key;
    if (unit.prefix.ends_with('.')) unit.prefix.pop_back();
  }
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  SHARDMESH_TRY(unit.layout.alignment, number_of(value, where, "alignment", 0, 0, most));
  SHARDMESH_TRY(const std::int64_t ranks, number_of(value, where, "ranks", 1, 1, most));
  unit.layout.group_size = static_cast<std::int32_t>(ranks);
  SHARDMESH_TRY(const json parameters, list_of(value, where, "parameters", true));
  for (const auto& [i, parameter] : ranges::views::enumerate(parameters)) {
    const std::string at = fmt::format("{}.parameters[{}]", where, i);
    SHARDMESH_TRY(check_members(parameter, at, {"name", "shape", "strides"}));
    parameter_info p;
    SHARDMESH_TRY(p.fqn, text_of(parameter, at, "name"));
    if (!parameter.contains("shape")) return wrong(at, "a member shape", parameter);
    SHARDMESH_TRY(p.shape, extents_of(parameter["shape"], at + ".shape"));
    if (parameter.contains("strides")) {
      SHARDMESH_TRY(p.strides, extents_of(parameter["strides"], at + ".strides"));
    }
    unit.parameters.push_back(std::move(p));
  }
  SHARDMESH_TRY(const json shared, list_of(value, where, "shared", false));
  for (const auto& [i, tied] : ranges::views::enumerate(shared)) {
    const std::string at = fmt::format("{}.shared[{}]", where, i);
    SHARDMESH_TRY(check_members(tied, at, {"name", "of"}));
    shared_parameter_info s;
    SHARDMESH_TRY(s.fqn, text_of(tied, at, "name"));
    SHARDMESH_TRY(s.of, text_of(tied, at, "of"));
    unit.shared.push_back(std::move(s));
  }
  return unit;
}

result<std::vector<flat_unit>> parse_flat_units(const std::string& text) {
  SHARDMESH_TRY(check_json_depth(text));
  json spec;
  try {
    spec = json::parse(text);
  } catch (const json::exception& e) {
    return fail(errc::bad_format, fmt::format("is not JSON: {}", e.what()));  // the text contains line and column
  }
  SHARDMESH_TRY(check_members(spec, "the whole", {"units"}));
  SHARDMESH_TRY(const json listed, list_of(spec, "the whole", "units", true));
  std::vector<flat_unit> units;
  for (std::size_t i = 0; i < listed.size(); ++i) {
    SHARDMESH_TRY(units.emplace_back(), unit_of(listed[i], fmt::format("units[{}]", i)));
    for (std::size_t k = 0; k < i; ++k)
      if (units[k].key == units[i].key)
        return fail(errc::duplicate_key, fmt::format("units[{}] and units[{}] describe the same flat parameter", k, i))
            .with_key(units[i].key);
  }
  return units;
}

}  // namespace

result<std::vector<flat_unit>> read_flat_units(const std::filesystem::path& file) {
  constexpr std::int64_t limit_bytes = std::int64_t{1} << 30;
  SHARDMESH_TRY(const std::vector<std::byte> bytes, read_file(file, limit_bytes));
  const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  auto units = parse_flat_units(text);
  if (!units) return std::move(units).error().with_file(file.string());
  return units;
}

}  // namespace shardmesh
