// SPDX-License-Identifier: Apache-2.0
// batch_builder: views as items of a batch: loops merged and ordered, what needs too many of them cut. Not here:
// running (backend).
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
  std::int64_t offset_bytes = 0;  // of the element with index 0 in every dimension
  dtype type = dtype::undefined;
  extents sizes{}, strides{};  // in elements
};
/// A view that lies in the memory at `base`, seen from there.
placed_view place(std::uint32_t slot, const std::byte* base, const const_tensor_view& view);

/// What a launch is given beside a batch: where the slots are. Sources are only read.
struct batch_bases {
  std::span<std::byte* const> to;
  std::span<const std::byte* const> from;
};

/// Collects work on strided memory as a table. Pieces without elements leave no item; dimensions that are one run in
/// both pieces become one loop; the loop with the smallest strides is the innermost.
class batch_builder {
 public:
  /// Each appends what the kernel of that name does, in `phase`.
  /// \errors errc::shape_mismatch for unequal sizes; errc::unsupported with both dtypes when there is no conversion, or
  ///         the reduction or the arithmetic is not defined; errc::unaligned for parts of bytes; errc::overflow when an
  ///         offset leaves 64 bits; errc::invalid_argument for a stride of 0 in a destination of more than one element.
  ///         Nothing is appended then.
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

/// Elements of an item, and bytes that it writes.
std::int64_t volume(const batch_item& item);
std::int64_t written_bytes(const batch_item& item);

}  // namespace shardmesh
