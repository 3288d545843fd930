// SPDX-License-Identifier: Apache-2.0
// Compares plans with a model: every rank holds an array of element indices and of the terms in them. All ranks' steps
// run on it, and the bytes are counted cell by cell.
#include <algorithm>
#include <bit>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <dice.hpp>
#include <indices.hpp>
#include <map>
#include <random>
#include <random_seed.hpp>
#include <random_segments.hpp>
#include <string>
#include <vector>
import shardmesh.test.layouts;
import shardmesh.transfer;

using namespace shardmesh;

namespace {

using indices::row_major;
using indices::sum;

// The content of a local cell: an element of the tensor, and the terms in it (bits). Cell -1 was never written.
struct content {
  std::int64_t cell = -1;
  std::uint64_t terms = 0;
  bool identity = false;
  int scaled = 0;
};

struct buffer {
  extents sizes;
  std::vector<content> cells;
  content& at(const extents& index) {
    for (std::size_t d = 0; d < sizes.rank(); ++d) REQUIRE((index[d] >= 0 && index[d] < sizes[d]));
    return cells[static_cast<std::size_t>(row_major(index, sizes))];
  }
};

buffer make_buffer(const extents& sizes) {
  return {sizes, std::vector<content>(static_cast<std::size_t>(box::whole(sizes).volume()))};
}

layout random_layout(dice& roll, const extents& shape, bool partial) {
  std::vector<std::int64_t> sizes;
  std::int64_t ranks = 1;
  for (std::int64_t m = 1 + roll.below(4); m > 0; --m) {
    const std::int64_t size = roll.pick<std::int64_t>({1, 2, 2, 3, 4, 5, 7});
    if (ranks * size > 16) continue;
    ranks *= size;
    sizes.push_back(size);
  }
  if (sizes.empty()) sizes.push_back(3);
  std::vector<placement> placements;
  const reduce_op op = roll.pick({reduce_op::sum, reduce_op::avg, reduce_op::max, reduce_op::min, reduce_op::product});
  for (std::size_t m = 0; m < sizes.size(); ++m) {
    const std::int64_t kind = roll.below(6);
    if (kind == 0 || shape.rank() == 0)
      placements.push_back(partial && roll.below(2) == 0 ? placement::partial(op) : placement::replicate());
    else if (kind == 1 && partial)
      placements.push_back(placement::partial(op));
    else if (kind == 2)
      placements.push_back(placement::strided_shard(
          static_cast<std::int32_t>(roll.below(static_cast<std::int64_t>(shape.rank()))), 1 + roll.below(4)));
    else {
      const auto dim = static_cast<std::int32_t>(roll.below(static_cast<std::int64_t>(shape.rank())));
      const std::int64_t size = shape[static_cast<std::size_t>(dim)];
      placements.push_back(kind == 3 ? placement::shard_segments(dim, random_segments(roll, size))
                                     : placement::shard(dim));
    }
  }
  std::vector<std::int32_t> numbering;
  if (roll.below(4) == 0) {
    std::int64_t count = 1;
    for (const std::int64_t s : sizes) count *= s;
    for (std::int32_t i = 0; i < count; ++i)
      numbering.push_back(static_cast<std::int32_t>(count) - 1 - i + static_cast<std::int32_t>(roll.below(2)) * 0);
  }
  return layout::make(device_mesh::make(sizes, {}, numbering).value(), placements, shape,
                      roll.below(3) == 0 ? split_rule::balanced() : split_rule::torch_chunk())
      .value();
}

struct world {
  layout from, to;
  owner_id ranks;
  std::vector<buffer> sources, destinations;
  std::map<std::pair<owner_id, box>, buffer> staging;
  std::map<std::pair<owner_id, box>, std::int32_t> last_term;
};

world make_world(const layout& from, const layout& to) {
  world w{from, to, std::max(from.mesh().rank_limit(), to.mesh().rank_limit()), {}, {}, {}, {}};
  for (owner_id r = 0; r < w.ranks; ++r) {
    const auto sized = [&](const layout& l) {
      return l.mesh().coordinate_of(r) ? make_buffer(l.local_shape(r)) : make_buffer({0});
    };
    w.sources.push_back(sized(from));
    w.destinations.push_back(sized(to));
  }
  for (const fragment& f : fragments::all_of(distribute(from).value()))
    indices::for_each(f.where.sizes, [&](const extents& i) {
      w.sources[static_cast<std::size_t>(f.owner)].at(sum(i, f.local_offsets)) = {
          row_major(sum(i, f.where.offsets), from.shape()), std::uint64_t{1} << f.term};
    });
  return w;
}

buffer& buffer_of(world& w, const step_end& end, const box& where) {
  if (end.side == buffer_side::source) return w.sources[static_cast<std::size_t>(end.owner)];
  if (end.side == buffer_side::destination) return w.destinations[static_cast<std::size_t>(end.owner)];
  const auto [entry, is_new] = w.staging.try_emplace({end.owner, where});
  if (is_new) entry->second = make_buffer(where.sizes);
  return entry->second;
}

// Runs a step on its receiving side.
void carry_out(world& w, const step& s) {
  buffer& from = buffer_of(w, s.from, s.where);
  buffer& to = buffer_of(w, s.to, s.where);
  if (s.to.side == buffer_side::staging && s.phase == step_phase::gather) {
    const auto [last, first] = w.last_term.try_emplace({s.to.owner, s.where}, s.term);
    REQUIRE(first == (s.kind == step_kind::copy));
    if (!first) {
      REQUIRE(s.term > last->second);
      last->second = s.term;
    }
  }
  indices::for_each(s.where.sizes, [&](const extents& i) {
    const content value = from.at(sum(i, s.from.offsets));
    content& target = to.at(sum(i, s.to.offsets));
    if (s.kind == step_kind::copy) {
      REQUIRE(value.cell == row_major(sum(i, s.where.offsets), w.from.shape()));
      REQUIRE(target.cell == -1);
      target = value;
    } else if (s.kind == step_kind::accumulate) {
      REQUIRE(value.cell == target.cell);
      REQUIRE((value.terms & target.terms) == 0);
      target.terms |= value.terms;
    } else if (s.kind == step_kind::scale || s.kind == step_kind::divide) {
      ++target.scaled;
    } else {
      REQUIRE(target.cell == -1);
      target.identity = true;
    }
  });
}

// The bytes that must move, counted cell by cell from holders and receivers.
std::int64_t brute_force_bound(const layout& from, const layout& to, std::int64_t item, std::int64_t wire,
                               bool same_terms, bool reduce) {
  const auto held = fragments::all_of(distribute(from).value());
  const auto wanted = fragments::all_of(distribute(to).value());
  std::int64_t bytes = 0;
  indices::for_each(from.shape(), [&](const extents& i) {
    const auto owners = [&](const std::vector<fragment>& all) {
      std::vector<std::pair<owner_id, std::int32_t>> found;  // (owner, term)
      for (const fragment& f : all)
        if (lies_within({i, extents::filled(i.rank(), 1)}, f.where)) found.emplace_back(f.owner, f.term);
      return found;
    };
    const auto holders = owners(held);
    auto receivers = owners(wanted);
    const auto has = [&](owner_id o, std::int32_t term) {
      return std::find(holders.begin(), holders.end(), std::pair{o, term}) != holders.end();
    };
    if (!same_terms) std::erase_if(receivers, [](const auto& r) { return r.second != 0; });
    if (!reduce) {
      for (const auto& [owner, term] : receivers) bytes += has(owner, same_terms ? term : 0) ? 0 : wire;
      return;
    }
    std::int64_t terms = 0, best = INT64_MAX;
    for (const auto& h : holders) terms = std::max<std::int64_t>(terms, h.second + 1);
    for (owner_id x = 0; x < 64; ++x) {
      std::int64_t cost = 0;
      for (std::int32_t t = 0; t < terms; ++t) cost += has(x, t) ? 0 : item;
      for (const auto& r : receivers) cost += r.first == x ? 0 : wire;
      best = std::min(best, cost);
    }
    bytes += best;
  });
  return bytes;
}

void check_case(const layout& from, const layout& to, dtype from_type, dtype to_type) {
  INFO(to_string(from) << " -> " << to_string(to));
  const distribution source = distribute(from).value(), destination = distribute(to).value();
  const auto planned =
      plan({{source, destination, from_type, to_type}}, {.allow_narrowing = true, .reduce_grain_bytes = 1});
  REQUIRE(planned.has_value());
  const bool same_terms = from.reduction() != reduce_op::none && from.reduction() == to.reduction() &&
                          source.terms() == destination.terms() && from.divisor() == to.divisor();
  const bool reduce = from.reduction() != reduce_op::none && !same_terms;
  world w = make_world(from, to);

  std::vector<rank_plan> plans;
  for (owner_id r = 0; r < w.ranks; ++r) plans.push_back(planned->for_owner(r));
  std::int64_t sent = 0, received = 0;
  std::map<std::pair<owner_id, owner_id>, std::vector<step>> wire_out, wire_in;
  for (owner_id r = 0; r < w.ranks; ++r) {
    const owner_steps& part = plans[static_cast<std::size_t>(r)].part(0);
    sent += part.sent_bytes;
    received += part.received_bytes;
    for (const auto& [peer, i] : part.sends()) wire_out[{r, peer}].push_back(part.steps[i]);
    for (const auto& [peer, i] : part.receives()) wire_in[{peer, r}].push_back(part.steps[i]);
    for (const peer_traffic& t : plans[static_cast<std::size_t>(r)].sends())
      REQUIRE(planned->bytes(r, t.peer) == t.size_bytes);
  }
  REQUIRE(wire_out == wire_in);
  for (const step_phase phase :
       {step_phase::gather, step_phase::average, step_phase::deliver, step_phase::repeat, step_phase::finish})
    for (owner_id r = 0; r < w.ranks; ++r) {
      const step_table& steps = plans[static_cast<std::size_t>(r)].steps(0);
      for (std::size_t i = 0; i < steps.size(); ++i) {
        const step s = steps[i];
        REQUIRE((s.from.owner == r || s.to.owner == r));
        REQUIRE(!s.where.is_empty());
        if (s.phase == phase && s.to.owner == r) carry_out(w, s);
      }
    }

  // Every destination cell has the right element with all terms, or the identity.
  const std::uint64_t every_term = (std::uint64_t{1} << source.terms()) - 1;
  std::vector<std::int64_t> written(static_cast<std::size_t>(w.ranks), 0);
  for (const fragment& f : fragments::all_of(destination)) {
    indices::for_each(f.where.sizes, [&](const extents& i) {
      const content& c = w.destinations[static_cast<std::size_t>(f.owner)].at(sum(i, f.local_offsets));
      ++written[static_cast<std::size_t>(f.owner)];
      if (!same_terms && f.term != 0) {
        REQUIRE(c.identity);
        return;
      }
      REQUIRE(c.cell == row_major(sum(i, f.where.offsets), to.shape()));
      REQUIRE(c.terms == (same_terms ? std::uint64_t{1} << f.term : every_term));
      const int scales = !same_terms ? (from.reduction() == reduce_op::avg && from.divisor() > 1 ? 1 : 0) +
                                           (to.reduction() == reduce_op::avg && to.divisor() > 1 ? 1 : 0)
                                     : 0;
      REQUIRE(c.scaled == scales);
    });
  }
  // No other cell was written.
  for (owner_id r = 0; r < w.ranks; ++r) {
    const auto& cells = w.destinations[static_cast<std::size_t>(r)].cells;
    REQUIRE(std::count_if(cells.begin(), cells.end(), [](const content& c) { return c.cell >= 0 || c.identity; }) ==
            written[static_cast<std::size_t>(r)]);
  }

  const std::int64_t item = item_bytes(from_type), wire = std::min(item, item_bytes(to_type));
  REQUIRE(sent == received);
  REQUIRE(planned->bytes_moved() == sent);
  REQUIRE(planned->lower_bound() == planned->bytes_moved());
  REQUIRE(planned->bytes_moved() == brute_force_bound(from, to, item, wire, same_terms, reduce));
}

}  // namespace

TEST_CASE("plans put every element where it belongs and move no byte too many") {
  const std::uint64_t seed = random_seed::seed();
  INFO("SHARDMESH_SEED=" << seed);
  dice roll(seed);
  for (int round = 0; round < 1500; ++round) {
    extents shape;
    for (std::int64_t d = roll.below(5); d > 0; --d)
      shape.push_back(roll.pick<std::int64_t>({0, 1, 2, 3, 5, 7, 8, 11, 13}));
    while (box::whole(shape).volume() > 2500) shape[roll.below(static_cast<std::int64_t>(shape.rank()))] = 2;
    if (roll.below(8) != 0)
      for (std::int64_t& size : shape) size = std::max<std::int64_t>(size, 1);
    const bool partial = roll.below(2) == 0;
    const layout from = random_layout(roll, shape, partial), to = random_layout(roll, shape, partial);
    const dtype other = roll.pick({dtype::float32, dtype::float32, dtype::bfloat16, dtype::float64});
    check_case(from, to, dtype::float32, other);
  }
}

TEST_CASE("a layout to itself moves nothing") {
  const std::uint64_t seed = random_seed::seed();
  INFO("SHARDMESH_SEED=" << seed);
  dice roll(seed);
  for (int round = 0; round < 200; ++round) {
    const layout l = random_layout(roll, {7, 6}, true);
    const distribution d = distribute(l).value();
    CHECK(plan({{d, d, dtype::float32, dtype::float32}}).value().bytes_moved() == 0);
  }
}
