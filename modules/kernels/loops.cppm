// SPDX-License-Identifier: Apache-2.0
// loop_nest: the loops that visit two views together, brought to a simple form. Internal to the room.
module shardmesh.kernels:loops;

import shardmesh.std;
import shardmesh.core;

namespace shardmesh {

/// What loops need of a view, be it written or read; refers to it.
struct strided {
  const extents& sizes;
  const extents& strides;
  std::int64_t item_bits;
  template <tensor_view_type View>
  strided(const View& view) : sizes(view.sizes), strides(view.strides), item_bits(bits(view.type)) {}
};

/// Loops over two views of equal sizes, outermost first; sizes are at least 2. Strides are in bits, so that sub-byte
/// types need no second version; `a` and `b` are bit offsets of the first element from the views' data.
struct loop_nest {
  struct loop {
    std::int64_t size = 0, a = 0, b = 0;
  };
  std::size_t rank = 0;
  loop loops[max_rank];
  std::int64_t a = 0, b = 0;
  bool empty = false;  // there is no element at all

  const loop& inner() const { return loops[rank - 1]; }
};

/// Keeps the row-major order of indices; merges neighbouring loops that are one run in both views.
loop_nest ordered_nest(const strided& a, const strided& b);

/// Any order: loops of negative `a` stride are turned round, then sorted by `a` stride (ties: `b`), then merged.
/// So `a` is visited in memory order.
loop_nest free_nest(const strided& a, const strided& b);

/// Calls `visit(a, b)` with the bit offsets of each iteration of the loops but the innermost `skip`.
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

/// Two views of equal sizes in host memory. errc::shape_mismatch with both sizes, errc::unsupported with the device.
result<void> check_shapes(const extents& a, const extents& b);
template <tensor_view_type A, tensor_view_type B>
result<void> check_pair(const A& a, const B& b) {
  auto sound = check_shapes(a.sizes, b.sizes);
  if (sound) sound = check_host_memory(a);
  if (sound) sound = check_host_memory(b);
  return sound;
}

}  // namespace shardmesh
