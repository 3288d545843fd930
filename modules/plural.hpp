// SPDX-License-Identifier: Apache-2.0
// Counts with their nouns ("1 tensor", "2 tensors", "3 entries"), and lists of ranks that state how many they omit.
// Shared by all rooms and tools; only .cpp files include it.
#pragma once
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace shardmesh::detail {

/// Formats a count with its noun. Pass `many` when the plural is not `one` with an "s".
template <std::integral Number>
std::string counted(Number count, std::string_view one, std::string_view many = {}) {
  if (count == 1) return fmt::format("1 {}", one);
  return many.empty() ? fmt::format("{} {}s", count, one) : fmt::format("{} {}", count, many);
}

/// Lists at most sixteen ranks: "0, 1, 2 and 7 more".
inline std::string rank_list(std::span<const std::int32_t> ranks) {
  constexpr std::size_t most = 16;
  const std::string named = fmt::format("{}", fmt::join(ranks.first(std::min(ranks.size(), most)), ", "));
  return ranks.size() > most ? fmt::format("{} and {} more", named, ranks.size() - most) : named;
}

/// Lists ranks with their noun: "rank 3", "ranks 0, 1, 2 and 7 more".
inline std::string ranks_text(std::span<const std::int32_t> ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", rank_list(ranks));
}

}  // namespace shardmesh::detail
