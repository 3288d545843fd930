// SPDX-License-Identifier: Apache-2.0
module;
#include <cstddef>
#include <string_view>
#include <vector>
module shardmesh.checkpoint;

import :meant_parameter;

namespace shardmesh {
namespace {

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace

std::vector<meant_parameter> parameter_names(std::string_view key) {
  constexpr std::string_view marker = ".state.";
  std::vector<std::size_t> begins;
  if (key.starts_with(marker.substr(1))) begins.push_back(marker.size() - 1);
  for (std::size_t at = key.find(marker); at != std::string_view::npos; at = key.find(marker, at + 1))
    begins.push_back(at + marker.size());
  std::vector<meant_parameter> names;
  const auto add = [&](std::size_t begin, std::size_t end, bool is_last) {
    if (begin >= end) return;
    const std::string_view name = key.substr(begin, end - begin);
    if (!is_number(name)) names.push_back({name, is_last});
  };
  for (const std::size_t begin : begins) add(begin, key.rfind('.'), false);
  for (const std::size_t begin : begins)
    if (const std::size_t dot = key.find('.', begin); dot != std::string_view::npos) add(dot + 1, key.size(), true);
  return names;
}

}  // namespace shardmesh
