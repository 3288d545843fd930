// SPDX-License-Identifier: Apache-2.0
module;
#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>
module shardmesh.fsdp;

namespace shardmesh {

std::span<const std::string_view> wrapper_names() {
  static constexpr auto names = std::to_array<std::string_view>({"_fsdp_wrapped_module", "_checkpoint_wrapped_module"});
  return names;
}

std::string clean_key(std::string_view key, std::span<const std::string_view> wrappers) {
  std::string cleaned;
  cleaned.reserve(key.size());
  bool is_first = true;
  for (std::size_t begin = 0; begin <= key.size();) {
    const std::size_t dot = std::min(key.find('.', begin), key.size());
    const std::string_view component = key.substr(begin, dot - begin);
    if (std::find(wrappers.begin(), wrappers.end(), component) == wrappers.end()) {
      if (!is_first) cleaned += '.';
      cleaned += component;
      is_first = false;
    }
    begin = dot + 1;
  }
  return cleaned;
}

std::string joined_key(std::string_view prefix, std::string_view key) {
  std::string joined(prefix);
  if (!prefix.empty() && !key.empty()) joined += '.';
  joined += key;
  return joined;
}

}  // namespace shardmesh
