// SPDX-License-Identifier: Apache-2.0
// reduce_op: how the terms of a Partial are combined. Not here: the arithmetic (kernels), partial placements (layout).
export module shardmesh.core:reduction;

import shardmesh.std;
import :headers;

export namespace shardmesh {

/// Whether partial mesh dimensions with these reductions make one tensor together: equal ones, and sum with avg (an
/// average of sums).
constexpr bool are_combinable(reduce_op a, reduce_op b) {
  const auto averages = [](reduce_op op) { return op == reduce_op::sum || op == reduce_op::avg; };
  return a == b || (averages(a) && averages(b));
}

/// PyTorch's spelling: "sum", "avg", "product", "min", "max", "band", "bor", "bxor"; "none".
std::string_view to_string(reduce_op op);
/// The operation with that spelling, or nothing; "none" is not one.
std::optional<reduce_op> parse_reduce_op(std::string_view text);

}  // namespace shardmesh
