// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>

#include <cstddef>
#include <string_view>
module shardmesh.storage;

namespace shardmesh {

result<void> check_json_depth(std::string_view text, std::size_t limit) {
  std::size_t depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      if (c == '"') quoted = false;
      continue;
    }
    if (c == '"') quoted = true;
    if ((c == '[' || c == '{') && ++depth > limit)
      return fail(errc::bad_format, fmt::format("JSON is nested deeper than {} levels", limit))
          .with_values(fmt::format("at most {} levels", limit), fmt::format("level {} at byte {}", depth, i));
    if ((c == ']' || c == '}') && depth > 0) --depth;
  }
  return {};
}

}  // namespace shardmesh
