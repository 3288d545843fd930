// SPDX-License-Identifier: Apache-2.0
// Loops over two views at once, merged and sorted so that kernels stay simple. Internal.
module shardmesh.kernels:loops;

import shardmesh.std;
import shardmesh.core;

namespace shardmesh {

/// The part of a view that loops need, for reading or for writing; refers to the view.
struct strided {
  const extents& sizes;
  const extents& strides;
  std::int64_t item_bits;
  template <tensor_view_type View>
  strided(const View& view) : sizes(view.sizes), strides(view.strides), item_bits(bits(view.type)) {}
};

/// Loops over two views of equal sizes, outermost first; sizes are at least 2. Strides are in bits, so that sub-byte
/// types need no second version. `a` and `b` are bit offsets from the views' data to the first element.
struct loop_nest {
  struct loop {
    std::int64_t size = 0, a = 0, b = 0;
  };
  std::size_t rank = 0;
  loop loops[max_rank];
  std::int64_t a = 0, b = 0;
  bool empty = false;  // the views have no elements

  const loop& inner() const { return loops[rank - 1]; }
};

/// Returns the loops in the row-major order of indices. Neighbouring loops that are one run in both views are merged.
loop_nest ordered_nest(const strided& a, const strided& b);

/// Returns the loops, reordered so that they visit `a` in memory order. Loops with a negative `a` stride are reversed,
/// then loops are sorted by `a` stride (ties: `b`), then merged.
loop_nest free_nest(const strided& a, const strided& b);

/// Calls `visit(a, b)` with the bit offsets of each iteration of all loops but the innermost `skip`.
template <class Visit>
void for_each_outer(const loop_nest& nest, std::size_t skip, Visit visit) {
  if (nest.empty) return;
  const std::size_t rank = nest.rank > skip ? nest.rank - skip : 0;
  std::int64_t at[max_rank]{};
  std::int64_t a = nest.a, b = nest.b;
  for (;;) {
    visit(a, b);
    std::size_t d = rank;
    for (; d > 0; --d) {
      const loop_nest::loop& l = nest.loops[d - 1];
      a += l.a;
      b += l.b;
      if (++at[d - 1] < l.size) break;
      a -= l.a * l.size;
      b -= l.b * l.size;
      at[d - 1] = 0;
    }
    if (d == 0) return;
  }
}

/// Checks that two views have equal sizes (errc::shape_mismatch with both sizes). `check_pair` also checks that they
/// are in host memory (errc::unsupported with the device).
result<void> check_shapes(const extents& a, const extents& b);
template <tensor_view_type A, tensor_view_type B>
result<void> check_pair(const A& a, const B& b) {
  auto sound = check_shapes(a.sizes, b.sizes);
  if (sound) sound = check_host_memory(a);
  if (sound) sound = check_host_memory(b);
  return sound;
}

}  // namespace shardmesh
