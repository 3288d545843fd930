// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
module shardmesh.remote;

import :text_parts;

namespace shardmesh::remote {
namespace {

// Reads `pattern`, in which '#' stands for a digit, from the beginning of `text`. Removes it, and returns the digits of
// each group as numbers in `numbers`.
bool take(std::string_view& text, std::string_view pattern, int* numbers) {
  if (text.size() < pattern.size()) return false;
  bool is_in_number = false;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '#') {
      if (text[i] != pattern[i]) return false;
      if (is_in_number) ++numbers;
      is_in_number = false;
      continue;
    }
    if (!is_digit(text[i])) return false;
    *numbers = (is_in_number ? *numbers * 10 : 0) + (text[i] - '0');
    is_in_number = true;
  }
  text.remove_prefix(pattern.size());
  return true;
}

// The zone at the end of a time, as its distance from UTC.
std::optional<std::chrono::minutes> zone_of(std::string_view text) {
  using std::chrono::minutes;
  if (text == "Z" || text == "z" || text == "UTC" || text == "GMT") return minutes(0);
  const bool is_east = text.starts_with('+');
  if (!is_east && !text.starts_with('-')) return std::nullopt;
  text.remove_prefix(1);
  int hours = 0, more = 0;
  if (!take(text, "##", &hours)) return std::nullopt;
  if (text.starts_with(':')) text.remove_prefix(1);
  if (!take(text, "##", &more) || !text.empty() || hours > 23 || more > 59) return std::nullopt;
  const minutes distance(hours * 60 + more);
  return is_east ? distance : -distance;
}

struct fields {
  int year;
  unsigned month, day;
  int hour, minute, second;
};

fields fields_of(wall_time time) {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(time);
  const auto day = std::chrono::floor<std::chrono::days>(seconds);
  const std::chrono::year_month_day date{day};
  const auto left = static_cast<int>((seconds - day).count());
  return {static_cast<int>(date.year()),
          static_cast<unsigned>(date.month()),
          static_cast<unsigned>(date.day()),
          left / 3600,
          left / 60 % 60,
          left % 60};
}

}  // namespace

std::optional<wall_time> parse_utc_time(std::string_view text) {
  int n[6] = {};  // year, month, day, hour, minute, second
  if (!take(text, "####-##-##T##:##:##", n)) return std::nullopt;
  if (text.starts_with('.')) {
    std::size_t end = 1;
    while (end < text.size() && is_digit(text[end])) ++end;
    if (end == 1) return std::nullopt;
    text.remove_prefix(end);
  }
  const auto zone = zone_of(text);
  std::chrono::year_month_day date{std::chrono::year(n[0]), std::chrono::month(static_cast<unsigned>(n[1])),
                                   std::chrono::day(static_cast<unsigned>(n[2]))};
  if (!zone || !date.ok() || n[0] < 1970 || n[3] > 23 || n[4] > 59 || n[5] > 60) return std::nullopt;
  if (n[0] > 2261)  // the clock's nanoseconds end in 2262
    date = std::chrono::year_month_day{std::chrono::year(2261), std::chrono::month(12), std::chrono::day(30)};
  const std::chrono::sys_seconds day = std::chrono::sys_days(date);
  return day + std::chrono::hours(n[3]) + std::chrono::minutes(n[4]) + std::chrono::seconds(n[5]) - *zone;
}

std::string basic_utc_time(wall_time time) {
  const fields f = fields_of(time);
  return fmt::format("{:04}{:02}{:02}T{:02}{:02}{:02}Z", f.year, f.month, f.day, f.hour, f.minute, f.second);
}

std::string readable_utc_time(wall_time time) {
  const fields f = fields_of(time);
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02}:{:02} UTC", f.year, f.month, f.day, f.hour, f.minute, f.second);
}

}  // namespace shardmesh::remote
