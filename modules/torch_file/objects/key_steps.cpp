// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>

#include <cstddef>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>
module shardmesh.torch_file;

import :key_steps;
import :object_parts;
import :python_keys;

namespace shardmesh::torch_file {
namespace {

constexpr std::size_t mark_digits = 16;

}  // namespace

key_steps::key_steps(const pickle::pairs& pairs) : are_all_unnamed_(true) {
  for (std::size_t i = 0; i < pairs.size() && are_all_unnamed_; ++i) are_all_unnamed_ = !has_name(pairs[i].key);
}

std::optional<path_key> key_steps::next(const pickle::value& key) {
  auto step = step_of(key, "");
  if (!step || !step->is_python() || !step->name().empty()) return step;
  path_key made = marked_key(step->pickled());
  if (!marks_.insert(std::string(made.name())).second) return std::nullopt;
  return made;
}

std::string key_steps::position(std::size_t i) const {
  return fmt::format("{}{}", are_all_unnamed_ ? "" : "#", i);
}

path_key marked_key(std::string_view pickled) {
  const auto json = json_of_key(path_key::of_python("", pickled));
  const std::string_view content = json ? std::string_view(*json) : pickled;
  const auto digest = xxh3(std::as_bytes(std::span(content.data(), content.size())));
  return path_key::of_python("#" + to_hex(digest).substr(0, mark_digits), pickled);
}

}  // namespace shardmesh::torch_file
