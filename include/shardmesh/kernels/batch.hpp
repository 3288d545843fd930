// SPDX-License-Identifier: Apache-2.0
// One piece of work on strided memory, as plain numbers. A table of such items can lie on any device and be read by
// kernels of any compiler: C++17, and no standard library but <cstdint>. `batch_builder` makes items; module kernels
// defines the operations (`copy`, `accumulate`, `fill_identity`, `scale`, `divide`).
#pragma once
#include <shardmesh/dtype.hpp>
#include <shardmesh/reduce_op.hpp>

#include <cstdint>

namespace shardmesh {

enum class batch_op : std::uint8_t {
  copy,        // to = from, converted when the dtypes differ
  accumulate,  // to = to op from
  fill,        // to = the identity of the reduction; `from` is not read
  scale,       // to = to * factor
  divide,      // to = to / factor
};

/// The most loops of an item; a view that needs more becomes several items.
inline constexpr int batch_max_loops = 8;

/// A loop with strides in bytes. Strides may be negative; a `from` stride of 0 repeats elements.
struct batch_loop {
  std::int64_t size = 1;
  std::int64_t to = 0;
  std::int64_t from = 0;
};

/// The work on one strided piece. Slots name memory instead of addresses, so one table serves any memory of the same
/// shape; the addresses are arguments of the launch. Elements are whole bytes; sub-byte types travel as uint8. Items of
/// one phase touch different bytes and may run in any order. Phases run one after another.
struct batch_item {
  batch_op op = batch_op::copy;
  reduce_op reduction = reduce_op::none;  // for accumulate and fill
  dtype to_type = dtype::undefined;
  dtype from_type = dtype::undefined;
  std::uint8_t rank = 0;  // loops in use, outermost first, each of size 2 or more; none: one element
  std::uint32_t phase = 0;
  std::uint32_t to_slot = 0;    // index into the launch's destinations
  std::uint32_t from_slot = 0;  // index into the launch's sources
  std::int64_t to_offset = 0;   // bytes from the slot's address to the first element
  std::int64_t from_offset = 0;
  double factor = 1;  // for scale and divide
  batch_loop loops[batch_max_loops]{};
};

}  // namespace shardmesh
