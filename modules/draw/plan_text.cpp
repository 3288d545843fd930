// SPDX-License-Identifier: Apache-2.0
// Traffic between ranks as characters: a table of amounts if it fits, else one character per pair, else only the
// busiest pairs.
module;
#include <fmt/core.h>
#include <plural.hpp>
#include <range/v3/view/take.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>
module shardmesh.draw;

import :scene;

namespace shardmesh {
namespace views = ranges::views;
namespace {

using traffic = std::map<std::pair<owner_id, owner_id>, std::int64_t>;

constexpr owner_id most_rows = 64;
constexpr std::size_t busiest_pairs = 16, margin = 8;

struct extent_of_traffic {
  owner_id senders = 0, takers = 0;
  std::int64_t largest = 0;
  std::size_t width = 4;  // of an amount
};

extent_of_traffic measure(const traffic& sent) {
  extent_of_traffic all;
  for (const auto& [pair, bytes] : sent) {
    all.senders = std::max(all.senders, pair.first + 1);
    all.takers = std::max(all.takers, pair.second + 1);
    all.largest = std::max(all.largest, bytes);
    all.width = std::max(all.width, human_bytes(bytes).size());
  }
  return all;
}

// 1 to 9: n means more than n - 1 and at most n ninths of the largest amount.
int ninths(std::int64_t bytes, std::int64_t largest) {
  for (; largest > INT64_MAX / 9; largest /= 2) bytes /= 2;
  return static_cast<int>(std::clamp<std::int64_t>((bytes * 9 + largest - 1) / largest, 1, 9));
}

// Larger amounts are more saturated, and the largest are bold. The five blues are readable on dark and light terminals.
std::string shaded(const std::string& text, int ninth, bool color) {
  constexpr std::array shades{110, 75, 39, 33, 27};
  if (!color) return text;
  return fmt::format("\x1b[{}38;5;{}m{}\x1b[0m", ninth > 6 ? "1;" : "",
                     shades.at(static_cast<std::size_t>(ninth - 1) / 2), text);
}

std::string table_of_amounts(const traffic& sent, const extent_of_traffic& all, bool color) {
  std::string text = fmt::format("{:<7}", "from\\to");
  for (owner_id to = 0; to < all.takers; ++to) text += fmt::format(" {:>{}}", to, all.width + 1);
  text += "\n";
  for (owner_id from = 0; from < all.senders; ++from) {
    text += fmt::format("{:>7}", from);
    for (owner_id to = 0; to < all.takers; ++to) {
      const auto found = sent.find({from, to});
      const std::string amount = found == sent.end() ? "." : human_bytes(found->second);
      const std::string cell = fmt::format(" {:>{}}", amount, all.width + 1);
      text += found == sent.end() ? cell : shaded(cell, ninths(found->second, all.largest), color);
    }
    text += "\n";
  }
  return text;
}

// One digit per pair. The receivers are above the columns, in one line of tens and one of ones.
std::string table_of_digits(const traffic& sent, const extent_of_traffic& all, bool color) {
  std::string tens = fmt::format("{:<8}", "from\\to"), ones(margin, ' ');
  for (owner_id to = 0; to < all.takers; ++to) {
    tens += to % 10 == 0 ? fmt::format("{}", to / 10 % 10) : " ";
    ones += fmt::format("{}", to % 10);
  }
  tens.erase(tens.find_last_not_of(' ') + 1);
  std::string text = tens + "\n" + ones + "\n";
  for (owner_id from = 0; from < all.senders; ++from) {
    text += fmt::format("{:>7} ", from);
    for (owner_id to = 0; to < all.takers; ++to) {
      const auto found = sent.find({from, to});
      const int ninth = found == sent.end() ? 0 : ninths(found->second, all.largest);
      text += ninth == 0 ? "." : shaded(fmt::format("{}", ninth), ninth, color);
    }
    text += "\n";
  }
  return text + fmt::format("9 is {}, 1 a ninth of it or less, . nothing\n", human_bytes(all.largest));
}

std::string list_of_busiest(const traffic& sent) {
  std::vector<std::pair<std::int64_t, std::pair<owner_id, owner_id>>> busiest;
  for (const auto& [pair, bytes] : sent) busiest.emplace_back(-bytes, pair);
  std::sort(busiest.begin(), busiest.end());
  std::string text;
  for (const auto& [minus_bytes, pair] : busiest | views::take(busiest_pairs))
    text += fmt::format("{:>6} -> {:<6} {}\n", pair.first, pair.second, human_bytes(-minus_bytes));
  if (busiest.size() > busiest_pairs)
    text += fmt::format("and {}\n", detail::counted(busiest.size() - busiest_pairs, "more pair"));
  return text;
}

}  // namespace

std::string draw_plan(const transfer_plan& plan, const draw_options& options) {
  const traffic sent = traffic_of(plan);
  if (sent.empty()) return "nothing moves\n";
  const extent_of_traffic all = measure(sent);
  const auto takers = static_cast<std::size_t>(all.takers);
  if (all.senders > most_rows || takers + margin > options.max_columns) return list_of_busiest(sent);
  if (takers * (all.width + 2) + margin <= options.max_columns) return table_of_amounts(sent, all, options.color);
  return table_of_digits(sent, all, options.color) + list_of_busiest(sent);
}

}  // namespace shardmesh
