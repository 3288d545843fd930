// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>
module shardmesh.kernels;

import :loops;

namespace shardmesh {
namespace {

loop_nest plain_nest(const strided& a, const strided& b) {
  loop_nest nest;
  for (std::size_t d = 0; d < a.sizes.rank(); ++d) {
    if (a.sizes[d] == 0) nest.empty = true;
    if (a.sizes[d] > 1) nest.loops[nest.rank++] = {a.sizes[d], a.strides[d] * a.item_bits, b.strides[d] * b.item_bits};
  }
  return nest;
}

void merge(loop_nest& nest) {
  std::size_t kept = 0;
  for (std::size_t d = 0; d < nest.rank; ++d) {
    const loop_nest::loop inner = nest.loops[d];
    if (kept > 0) {
      loop_nest::loop& outer = nest.loops[kept - 1];
      if (outer.a == inner.a * inner.size && outer.b == inner.b * inner.size) {
        outer = {outer.size * inner.size, inner.a, inner.b};
        continue;
      }
    }
    nest.loops[kept++] = inner;
  }
  nest.rank = kept;
}

}  // namespace

loop_nest ordered_nest(const strided& a, const strided& b) {
  loop_nest nest = plain_nest(a, b);
  merge(nest);
  return nest;
}

loop_nest free_nest(const strided& a, const strided& b) {
  loop_nest nest = plain_nest(a, b);
  if (nest.empty) return nest;
  for (std::size_t d = 0; d < nest.rank; ++d) {
    loop_nest::loop& l = nest.loops[d];
    if (l.a > 0 || (l.a == 0 && l.b >= 0)) continue;
    nest.a += (l.size - 1) * l.a;
    nest.b += (l.size - 1) * l.b;
    l.a = -l.a;
    l.b = -l.b;
  }
  std::sort(nest.loops, nest.loops + nest.rank, [](const loop_nest::loop& x, const loop_nest::loop& y) {
    return x.a != y.a ? x.a > y.a : std::abs(x.b) > std::abs(y.b);
  });
  merge(nest);
  return nest;
}

result<void> check_shapes(const extents& a, const extents& b) {
  if (a == b) return {};
  return fail(errc::shape_mismatch, "the two tensors differ in shape").with_values(to_string(a), to_string(b));
}

}  // namespace shardmesh
