// SPDX-License-Identifier: Apache-2.0
// Counts in words, and lists of them: "2 tensors, 1 file and 3 entries".
#pragma once
#include <concepts>
#include <plural.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tool {

using shardmesh::detail::counted;

/// Returns "a", "a and b", or "a, b and c"; empty texts are left out.
inline std::string enumerated(const std::vector<std::string>& parts) {
  std::vector<std::string_view> told;
  for (const std::string& part : parts)
    if (!part.empty()) told.push_back(part);
  std::string text;
  for (std::size_t i = 0; i < told.size(); ++i)
    text += std::string(i == 0 ? "" : i + 1 == told.size() ? " and " : ", ") + std::string(told[i]);
  return text;
}

/// As `counted`, but empty for 0, so that a list leaves it out.
template <std::integral Number>
std::string counted_if_any(Number count, std::string_view one, std::string_view many = {}) {
  return count == 0 ? std::string() : counted(count, one, many);
}

}  // namespace tool
