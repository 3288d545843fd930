// SPDX-License-Identifier: Apache-2.0
module;
#include <array>
#include <optional>
#include <string_view>
#include <utility>
module shardmesh.core;

namespace shardmesh {
namespace {

constexpr auto op_names = std::to_array<std::pair<reduce_op, std::string_view>>({{reduce_op::sum, "sum"},
                                                                                 {reduce_op::avg, "avg"},
                                                                                 {reduce_op::product, "product"},
                                                                                 {reduce_op::min, "min"},
                                                                                 {reduce_op::max, "max"},
                                                                                 {reduce_op::band, "band"},
                                                                                 {reduce_op::bor, "bor"},
                                                                                 {reduce_op::bxor, "bxor"}});

}  // namespace

std::string_view to_string(reduce_op op) {
  for (const auto& [value, spelling] : op_names)
    if (value == op) return spelling;
  return "none";
}

std::optional<reduce_op> parse_reduce_op(std::string_view text) {
  for (const auto& [value, spelling] : op_names)
    if (spelling == text) return value;
  return std::nullopt;
}

}  // namespace shardmesh
