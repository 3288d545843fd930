// SPDX-License-Identifier: Apache-2.0
module;
#include <algorithm>
#include <string>
#include <utility>
#include <vector>
module shardmesh.mapping;

namespace shardmesh {

mapping_rules mapping_rules::inverse() const {
  mapping_rules made = *this;
  std::swap(made.left, made.right);
  for (mapping_rule& rule : made.rules) {
    std::swap(rule.left, rule.right);
    std::swap(rule.index.left, rule.index.right);
    std::reverse(rule.values.begin(), rule.values.end());
    for (value_step& step : rule.values) step = inverse_of(step);
  }
  for (ignored_tensors& one : made.ignored) one.is_left = !one.is_left;
  for (tied_tensor& one : made.tied) one.is_left = !one.is_left;
  return made;
}

}  // namespace shardmesh
