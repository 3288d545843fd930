// SPDX-License-Identifier: Apache-2.0
module;
#include <cstddef>
#include <cstdint>
#include <vector>
module shardmesh.transfer;

import :lent_pieces;
import :route;
import :route_cursor;
import :step_memory;

namespace shardmesh {

lent_pieces::lent_pieces(const step_memory& memory, std::size_t most) : memory_(memory) {
  lenders_.reserve(most);
}

const lender& lent_pieces::of(const route_cursor& at, const message& m) {
  return lenders_.emplace_back(memory_, at, m.first);
}

}  // namespace shardmesh
