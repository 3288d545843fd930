// SPDX-License-Identifier: Apache-2.0
// The facts that the JSON of an object states, and floating-point numbers as text. `object_json.cpp` prints the JSON.
module;
#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
module shardmesh.torch_file;

namespace shardmesh::torch_file {

bool is_whole_json(std::string_view json) {
  return json.find("{\"$tensor\":") == std::string_view::npos && !has_unknown_values(json);
}

bool is_empty_dict(std::string_view json) {
  return json == R"({"$dict":[]})" || json == R"({"$odict":[]})";
}

bool has_unknown_values(std::string_view json) {
  constexpr std::string_view other = "{\"$other\":\"";
  for (std::size_t at = json.find(other); at != std::string_view::npos; at = json.find(other, at)) {
    // Quotes inside a JSON string are escaped, so neither a tag nor the end of a name can occur in one.
    at += other.size();
    while (at < json.size() && json[at] != '"') at += json[at] == '\\' ? 2 : 1;
    const std::string_view rest = json.substr(std::min(at, json.size()));
    if (!rest.starts_with("\",\"range\":") && !rest.starts_with("\",\"dtype\":")) return true;
  }
  return false;
}

std::string float_hex(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const std::uint64_t mantissa = bits & ((std::uint64_t{1} << 52) - 1);
  const auto biased = static_cast<int>(bits >> 52 & 0x7ff);
  const std::string_view sign = bits >> 63 != 0 ? "-" : "";
  if (biased == 0 && mantissa == 0) return fmt::format("{}0x0.0p+0", sign);
  return fmt::format("{}0x{}.{:013x}p{:+d}", sign, biased == 0 ? 0 : 1, mantissa, biased == 0 ? -1022 : biased - 1023);
}

}  // namespace shardmesh::torch_file
