// SPDX-License-Identifier: Apache-2.0
// `reduce_op`: the operation that combines terms. Its functions are in `shardmesh.core`.
#pragma once
#include <cstdint>

namespace shardmesh {

/// The operation that combines the terms of a Partial; `none` if there are no terms. An average is a sum that is
/// divided at the end by the number of terms.
enum class reduce_op : std::uint8_t { none, sum, avg, product, min, max, band, bor, bxor };

}  // namespace shardmesh
