// SPDX-License-Identifier: Apache-2.0
// Turns views into the items of a batch: merges and orders their loops, and splits views with too many loops. Running a
// batch is in `backend`.
module;
#include <shardmesh/kernels/batch.hpp>
export module shardmesh.kernels:batch;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh {
using shardmesh::batch_item;
using shardmesh::batch_loop;
using shardmesh::batch_max_loops;
using shardmesh::batch_op;

/// A strided piece of a slot's memory: a view without an address.
struct placed_view {
  std::uint32_t slot = 0;
  std::int64_t offset_bytes = 0;  // of the element whose indices are all 0
  dtype type = dtype::undefined;
  extents sizes{}, strides{};  // in elements
};
/// The placement of a view relative to `base`, the address of its slot.
placed_view place(std::uint32_t slot, const std::byte* base, const const_tensor_view& view);

/// The addresses of the slots for one launch of a batch. Sources are only read.
struct batch_bases {
  std::span<std::byte* const> to;
  std::span<const std::byte* const> from;
};

/// Collects work on strided memory as a table. Pieces without elements add no item. Neighbouring dimensions that form
/// one run in both pieces become one loop. The loop with the smallest strides is innermost.
class batch_builder {
 public:
  /// Append the work of the kernel of the same name, in `phase`.
  /// \errors errc::shape_mismatch for unequal sizes; errc::unsupported with both dtypes if there is no conversion, or
  ///         if the reduction or the arithmetic is not defined; errc::unaligned for a piece that starts or ends inside
  ///         a byte; errc::overflow if an offset exceeds 64 bits; errc::invalid_argument for a destination in which two
  ///         indices share an element, such as a stride of 0. Nothing is appended then.
  result<void> copy(const placed_view& to, const placed_view& from, std::uint32_t phase = 0);
  result<void> accumulate(const placed_view& to, const placed_view& from, reduce_op op, std::uint32_t phase = 0);
  result<void> fill_identity(const placed_view& to, reduce_op op, std::uint32_t phase = 0);
  result<void> scale(const placed_view& to, double factor, std::uint32_t phase = 0);
  result<void> divide(const placed_view& to, double divisor, std::uint32_t phase = 0);

  std::span<const batch_item> items() const { return items_; }
  bool empty() const { return items_.empty(); }
  void clear() { items_.clear(); }

 private:
  result<void> add(batch_item item, const placed_view& to, const placed_view& from);
  std::vector<batch_item> items_;
};

}  // namespace shardmesh
