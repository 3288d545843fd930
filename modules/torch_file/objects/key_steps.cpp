// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>

#include <cstddef>
#include <optional>
#include <set>
#include <string>
module shardmesh.torch_file;

import :key_steps;
import :python_keys;

namespace shardmesh::torch_file {

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

}  // namespace shardmesh::torch_file
