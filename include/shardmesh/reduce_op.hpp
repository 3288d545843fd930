// SPDX-License-Identifier: Apache-2.0
// `reduce_op`: how terms are combined. Its functions are in `shardmesh.core`.
#pragma once
#include <cstdint>

namespace shardmesh {

/// How terms of a Partial are combined; `none` if there are no terms. An average is a sum that is divided at the end by
/// the number of terms.
enum class reduce_op : std::uint8_t { none, sum, avg, product, min, max, band, bor, bxor };

}  // namespace shardmesh
