// SPDX-License-Identifier: Apache-2.0
// batch_item: one piece of work on strided memory, as plain numbers, so that a table of them can lie on any device and
// kernels of any compiler read it (C++17, no standard library but <cstdint>). Not here: making them (room devices),
// what the operations mean (room kernels: `copy`, `accumulate`, `fill_identity`, `scale`, `divide`).
#pragma once
#include <shardmesh/dtype.hpp>
#include <shardmesh/reduce_op.hpp>

#include <cstdint>

namespace shardmesh {

enum class batch_op : std::uint8_t {
  copy,        // to = from, converted when the dtypes differ
  accumulate,  // to = to op from
  fill,        // to = the identity of the reduction; `from` is not looked at
  scale,       // to = to * factor
  divide,      // to = to / factor
};

/// Loops that an item has at most; a view that needs more becomes several items.
inline constexpr int batch_max_loops = 8;

/// Strides in bytes: of either sign, 0 in `from` for what is repeated.
struct batch_loop {
  std::int64_t size = 1;
  std::int64_t to = 0;
  std::int64_t from = 0;
};

/// What is done with one strided piece. Memory is named by slots, not by addresses: one table serves any memory of the
/// same shape, and the addresses are arguments of the launch. Elements are whole bytes; bytes of sub-byte types travel
/// as uint8. Items of one phase touch different bytes and may run in any order; phases follow one another.
struct batch_item {
  batch_op op = batch_op::copy;
  reduce_op reduction = reduce_op::none;  // of accumulate and fill
  dtype to_type = dtype::undefined;
  dtype from_type = dtype::undefined;
  std::uint8_t rank = 0;  // loops in use, outermost first, each of size 2 or more; none: one element
  std::uint32_t phase = 0;
  std::uint32_t to_slot = 0;    // index into the launch's destinations
  std::uint32_t from_slot = 0;  // index into the launch's sources
  std::int64_t to_offset = 0;   // bytes from the slot's address to the first element
  std::int64_t from_offset = 0;
  double factor = 1;  // of scale and divide
  batch_loop loops[batch_max_loops]{};
};

}  // namespace shardmesh
