// SPDX-License-Identifier: Apache-2.0
// reduce_op: the operation that combines the terms of a Partial. The arithmetic is in room kernels, and partial
// placements are in room layout.
export module shardmesh.core:reduction;

import shardmesh.std;
import :headers;

export namespace shardmesh {

/// Returns whether one tensor can be partial over two mesh dimensions with these reductions. Equal reductions can be
/// combined, and so can sum and avg (an average of sums).
constexpr bool are_combinable(reduce_op a, reduce_op b) {
  const auto averages = [](reduce_op op) { return op == reduce_op::sum || op == reduce_op::avg; };
  return a == b || (averages(a) && averages(b));
}

/// PyTorch's name: "sum", "avg", "product", "min", "max", "band", "bor", "bxor". Any other value is "none".
std::string_view to_string(reduce_op op);
/// Returns the operation of that name, or nothing. "none" is not accepted.
std::optional<reduce_op> parse_reduce_op(std::string_view text);

}  // namespace shardmesh
