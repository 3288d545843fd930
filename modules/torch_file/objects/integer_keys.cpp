// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
module shardmesh.torch_file;

import :integer_keys;

namespace shardmesh::torch_file {

path with_text_keys(const path& where) {
  path made;
  for (const path_key& step : where)
    made.push_back(step.is_integer() || step.is_python() ? path_key(step.name()) : step);
  return made;
}

std::optional<std::string> note_of_integer_keys(std::span<const output_tensor> tensors,
                                                std::span<const output_object> objects, std::string_view to) {
  std::size_t count = 0;
  const std::string* first = nullptr;
  const auto look = [&](const auto& entry) {
    if (std::none_of(entry.where.begin(), entry.where.end(), [](const path_key& step) { return step.is_integer(); }))
      return;
    if (count++ == 0) first = &entry.key;
  };
  std::for_each(tensors.begin(), tensors.end(), look);
  std::for_each(objects.begin(), objects.end(), look);
  if (count == 0) return std::nullopt;
  return fmt::format("{}{}: integer keys of dicts become {}", escaped(*first),
                     count == 1 ? "" : fmt::format(" and {} more", count - 1), to);
}

}  // namespace shardmesh::torch_file
