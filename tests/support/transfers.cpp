// SPDX-License-Identifier: Apache-2.0
// Implements shardmesh.test.transfers.
module;
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <dice.hpp>
#include <golden.hpp>
#include <indices.hpp>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <random_segments.hpp>
#include <range/v3/action/sort.hpp>
#include <range/v3/action/unique.hpp>
#include <string>
#include <utility>
#include <vector>

module shardmesh.test.transfers;

import shardmesh.test.layouts;
import shardmesh.transfer;

using namespace shardmesh;

namespace transfers {

namespace {

device_mesh random_mesh(dice& roll, std::int32_t world) {
  std::vector<std::int64_t> sizes;
  std::int64_t ranks = 1;
  for (std::int64_t m = 1 + roll.below(4); m > 0; --m) {
    const std::int64_t size = 1 + roll.below(world / ranks);
    ranks *= size;
    sizes.push_back(size);
  }
  // Any of the world's ranks, in any order: meshes may be disjoint, overlap, or be equal.
  std::vector<std::int32_t> numbering;
  if (roll.below(2) == 0) {
    for (std::int32_t r = 0; r < world; ++r) numbering.push_back(r);
    std::shuffle(numbering.begin(), numbering.end(), roll.engine());
    numbering.resize(static_cast<std::size_t>(ranks));
  }
  return device_mesh::make(sizes, {}, numbering).value();
}

distribution random_layout(dice& roll, const extents& shape, std::int32_t world, reduce_op op) {
  const device_mesh mesh = random_mesh(roll, world);
  std::vector<placement> placements;
  for (std::size_t m = 0; m < mesh.rank(); ++m) {
    const std::int64_t kind = roll.below(5);
    const auto dim = [&] { return static_cast<std::int32_t>(roll.below(static_cast<std::int64_t>(shape.rank()))); };
    if (op != reduce_op::none && (kind == 0 || m == 0))
      placements.push_back(placement::partial(op));
    else if (kind == 1 || shape.rank() == 0)
      placements.push_back(placement::replicate());
    else if (kind == 2)
      placements.push_back(placement::strided_shard(dim(), 1 + roll.below(4)));
    else if (kind == 3 && roll.below(2) == 0) {
      const std::int32_t cut = dim();
      placements.push_back(placement::shard_segments(cut, random_segments(roll, shape[static_cast<std::size_t>(cut)])));
    } else
      placements.push_back(placement::shard(dim()));
  }
  return distribute(layout::make(mesh, placements, shape,
                                 roll.below(3) == 0 ? split_rule::balanced() : split_rule::torch_chunk())
                        .value())
      .value();
}

// A grid of boxes, each with random owners, in its own slots with an offset before it. A destination may have boxes
// that no rank wants.
distribution random_list(dice& roll, const extents& shape, std::int32_t world, bool complete) {
  std::vector<std::vector<std::int64_t>> cuts;
  for (const std::int64_t size : shape) {
    std::vector<std::int64_t> at{0, size};
    for (std::int64_t n = roll.below(3); n > 0; --n) at.push_back(roll.below(size + 1));
    at |= ranges::actions::sort | ranges::actions::unique;
    if (at.size() == 1) at.push_back(at.front());  // for a size of 0
    cuts.push_back(std::move(at));
  }
  std::vector<fragment> fragments;
  std::vector<std::int32_t> slots(static_cast<std::size_t>(world), 0);
  extents pieces;
  for (const auto& at : cuts) pieces.push_back(static_cast<std::int64_t>(at.size()) - 1);
  indices::for_each(pieces, [&](const extents& cell) {
    fragment f;
    for (std::size_t d = 0; d < cell.rank(); ++d) {
      const auto i = static_cast<std::size_t>(cell[d]);
      f.where.offsets.push_back(cuts[d][i]);
      f.where.sizes.push_back(cuts[d][i + 1] - cuts[d][i]);
      f.local_offsets.push_back(roll.below(3));
    }
    std::vector<std::int32_t> ranks;
    for (std::int32_t r = 0; r < world; ++r) ranks.push_back(r);
    std::shuffle(ranks.begin(), ranks.end(), roll.engine());
    const std::int64_t holders = (complete ? 1 : 0) + roll.below(3);
    for (std::int64_t h = 0; h < std::min<std::int64_t>(holders, world); ++h) {
      f.owner = ranks[static_cast<std::size_t>(h)];
      f.slot = slots[static_cast<std::size_t>(f.owner)]++;
      fragments.push_back(f);
    }
  });
  return distribution::from_fragments(shape, fragments, owner_space::ranks).value();
}

}  // namespace

tensor_case random_case(dice& roll, std::int32_t world) {
  tensor_case c;
  for (std::int64_t d = roll.below(5); d > 0; --d)
    c.shape.push_back(roll.pick<std::int64_t>({1, 2, 3, 4, 5, 7, 8, 11}));
  if (roll.below(12) == 0 && c.shape.rank() > 0) c.shape[0] = 0;
  while (box::whole(c.shape).volume() > 3000) c.shape[c.shape.rank() - 1] = 1, c.shape[0] = 1, c.shape[1] = 2;
  const auto reduction = [&] {
    if (roll.below(2) == 0) return reduce_op::none;
    return roll.pick({reduce_op::sum, reduce_op::avg, reduce_op::min, reduce_op::max, reduce_op::product});
  };
  const auto side = [&](bool complete) {
    if (roll.below(4) == 0) return random_list(roll, c.shape, world, complete);
    return random_layout(roll, c.shape, world, reduction());
  };
  c.transfer.from = side(true);
  c.transfer.to = roll.below(6) == 0 ? c.transfer.from : side(false);
  const bool averages = c.transfer.from.reduction() == reduce_op::avg || c.transfer.to.reduction() == reduce_op::avg;
  const auto type = [&] {
    return averages ? roll.pick({dtype::float32, dtype::float64, dtype::bfloat16, dtype::float16})
                    : roll.pick({dtype::float32, dtype::float64, dtype::bfloat16, dtype::float16, dtype::int8,
                                 dtype::int32, dtype::int64});
  };
  c.transfer.from_type = type();
  c.transfer.to_type = roll.below(2) == 0 ? c.transfer.from_type : type();
  c.held = fragments::all_of(c.transfer.from);
  return c;
}

std::vector<tensor_case> golden_cases(std::int32_t world) {
  const auto& all = golden::file("redistribute.json");
  std::vector<tensor_case> cases;
  for (const char* const list : {"same_mesh", "other_mesh"})
    for (const auto& c : all[list]) {
      const bool same = c.contains("mesh");
      const layout from = golden::to_layout(c[same ? "mesh" : "src_mesh"], c["shape"], c["src"]);
      const layout to = golden::to_layout(c[same ? "mesh" : "dst_mesh"], c["shape"], c["dst"]);
      if (std::max(from.mesh().rank_limit(), to.mesh().rank_limit()) > world) continue;
      const dtype type = parse_dtype(c.value("dtype", "float32")).value();
      tensor_case made{from.shape(), {distribute(from).value(), distribute(to).value(), type, type}, {}};
      made.held = fragments::all_of(made.transfer.from);
      cases.push_back(std::move(made));
    }
  return cases;
}

std::string describe(const tensor_case& c) {
  return to_string(c.shape) + " " + std::string(name(c.transfer.from_type)) + " " +
         std::string(to_string(c.transfer.from.reduction())) + " of " + std::to_string(c.transfer.from.terms()) +
         " -> " + std::string(name(c.transfer.to_type)) + " " + std::string(to_string(c.transfer.to.reduction())) +
         " of " + std::to_string(c.transfer.to.terms());
}

double term_value(const tensor_case& c, std::int64_t cell, std::int32_t term, int run) {
  if (c.transfer.from.reduction() == reduce_op::product) {
    const double sign = (cell + term + run) % 2 == 0 ? 1 : -1;
    return term == 0 ? sign * static_cast<double>(1 + cell % 3) : sign;
  }
  return static_cast<double>((cell * 31 + term * 17 + run * 5) % 13 - 6);
}

tensor_view scalar(void* data, dtype type) {
  return {static_cast<std::byte*>(data), type, {}, {}, {}};
}
const_tensor_view scalar(const void* data, dtype type) {
  return {static_cast<const std::byte*>(data), type, {}, {}, {}};
}

namespace {

// The value after a round trip through `type`.
double as(dtype type, double value) {
  std::byte stored[16];
  double back = 0;
  if (!copy(scalar(stored, type), scalar(&value, dtype::float64)) ||
      !copy(scalar(&back, dtype::float64), scalar(stored, type)))
    return -12345;
  return back;
}

double combined(reduce_op op, double a, double b) {
  switch (op) {
    case reduce_op::product:
      return a * b;
    case reduce_op::min:
      return std::min(a, b);
    case reduce_op::max:
      return std::max(a, b);
    default:
      return a + b;
  }
}

// The identity of a reduction in a dtype, read back as a double.
double identity(reduce_op op, dtype type) {
  if (op == reduce_op::sum || op == reduce_op::avg) return 0;
  if (op == reduce_op::product) return 1;
  double least = 0, most = 0;
  switch (type) {
    case dtype::int8:
      least = -128, most = 127;
      break;
    case dtype::int32:
      least = -2147483648.0, most = 2147483647.0;
      break;
    case dtype::int64:
      least = -9223372036854775808.0, most = 9223372036854775808.0;  // as a double
      break;
    default:
      least = -std::numeric_limits<double>::infinity(), most = -least;
  }
  return op == reduce_op::min ? most : least;
}

std::int64_t divisor_of(const distribution& d) {
  return d.divisor() != 0 ? d.divisor() : d.terms();
}

bool terms_travel(const tensor_transfer& t) {
  return t.from.reduction() != reduce_op::none && t.from.reduction() == t.to.reduction() &&
         t.from.terms() == t.to.terms() && t.from.divisor() == t.to.divisor();
}

}  // namespace

double expected(const tensor_case& c, std::int64_t cell, std::int32_t term, int run) {
  const tensor_transfer& t = c.transfer;
  const auto held = [&](std::int32_t k) { return as(t.from_type, term_value(c, cell, k, run)); };
  if (terms_travel(t)) return as(t.to_type, held(term));
  if (term != 0) return identity(t.to.reduction(), t.to_type);
  double value = held(0);
  if (t.from.reduction() != reduce_op::none) {
    for (std::int32_t k = 1; k < t.from.terms(); ++k) value = combined(t.from.reduction(), value, held(k));
    if (t.from.reduction() == reduce_op::avg) value /= static_cast<double>(divisor_of(t.from));
    // Sums are computed in float32 or wider, then rounded to the source's dtype, then cast.
    if (t.from_type != dtype::float64) value = as(dtype::float32, value);
    value = as(t.from_type, value);
  }
  value = as(t.to_type, value);
  if (t.to.reduction() == reduce_op::avg) value = as(t.to_type, value * static_cast<double>(divisor_of(t.to)));
  return value;
}

}  // namespace transfers
