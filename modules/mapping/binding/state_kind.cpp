// SPDX-License-Identifier: Apache-2.0
module;
#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>
#include <tuple>
module shardmesh.mapping;

import :state_kind;

namespace shardmesh {

std::string_view state_kind::name() const {
  if (!after.empty()) return after.substr(1);
  const std::string_view inner = before.substr(0, before.size() - 1);
  return inner.substr(inner.rfind('.') + 1);
}

bool state_kind::is_master() const {
  constexpr auto known = std::to_array<std::string_view>({"master_param", "fp32_param", "fp32"});
  return std::find(known.begin(), known.end(), name()) != known.end();
}

bool operator<(const state_kind& a, const state_kind& b) {
  return std::tie(a.is_tensor, a.before, a.after, a.prefix) < std::tie(b.is_tensor, b.before, b.after, b.prefix);
}

bool has_component(std::string_view key, std::string_view name) {
  for (std::size_t begin = 0; begin <= key.size();) {
    const std::size_t end = std::min(key.find('.', begin), key.size());
    if (key.substr(begin, end - begin) == name) return true;
    begin = end + 1;
  }
  return false;
}

}  // namespace shardmesh
