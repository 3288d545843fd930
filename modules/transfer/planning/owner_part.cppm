// SPDX-License-Identifier: Apache-2.0
// One owner's part under the transfer rules: its steps, the bytes that it sends, and its share of the lower bound.
// `expand` compiles these functions for distributions; `static_transfer` evaluates them at compile time. Exports
// nothing.
export module shardmesh.transfer:owner_part;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import :cells;
import :rank_plan;
import :reduction_rules;
import :step;
import :step_table;
import :transfer_class;
import :value_rules;

namespace shardmesh {

inline constexpr std::int64_t staging_alignment = 64;

// Bytes of staging that these elements of a reduction take.
constexpr std::int64_t staging_size(std::int64_t elements, std::int64_t sum_bits) {
  const std::int64_t size = elements * sum_bits / 8;
  return (size + staging_alignment - 1) / staging_alignment * staging_alignment;
}

}  // namespace shardmesh

namespace shardmesh::rules {

constexpr std::int64_t bytes_of(std::int64_t volume, std::int64_t bits) {
  return volume * bits / 8;
}

// Calls `emit` with every step in which `owner` of `space` takes part, in no particular order.
template <class Class, class Emit>
constexpr void expand(const Class& c, owner_id owner, owner_space space, Emit&& emit) {
  if (c.mode == transfer_mode::reduce) {
    expand_reduction(c, owner, space, emit);
    return;
  }
  if (space == c.to.space()) receive_values(c, owner, emit);
  if (space == c.from.space()) send_values(c, owner, emit);
}

// The steps of one owner, sorted, and their bytes. `expected` is an estimate of their number.
template <class Class>
constexpr owner_steps steps_of(const Class& c, owner_id owner, owner_space space, std::size_t expected = 0) {
  owner_steps made;
  made.owner = owner;
  made.is_giver = space == c.from.space();
  made.one_space = c.one_space();
  const auto bytes_in = [&](const auto& d, dtype type) {
    std::int64_t sum = 0;
    if (d.space() == space)
      d.fragments_of(owner, [&](const fragment& f) { return sum += bytes_of(f.where.volume(), bits(type)), true; });
    return sum;
  };
  made.held_bytes = bytes_in(c.from, c.from_type);
  made.wanted_bytes = bytes_in(c.to, c.to_type);
  made.steps = step_table(c.from.global_shape().rank());
  made.steps.reserve(expected);
  rules::expand(c, owner, space, [&](const step& s) { made.steps.push_back(s); });
  made.steps.sort();
  const std::int64_t sum_bits = bits(accumulation_type(c.from_type));
  made.steps.for_each([&](std::size_t, const step_head& s, std::int64_t volume) {
    const std::int64_t size = bytes_of(volume, c.wire_bits_to(s.to_side));
    if (s.to_side == buffer_side::staging && s.kind == step_kind::copy && s.to_owner == owner && made.is_giver)
      made.staging_bytes += staging_size(volume, sum_bits);
    if (made.travels(s))
      (made.is_sent(s) ? made.sent_bytes : made.received_bytes) += size;
    else if (s.kind == step_kind::copy)
      made.local_bytes += size;
  });
  return made;
}

// Returns whether this step copies out of a source fragment of `owner`. Every copy counts once, at its owner in the
// source. Copies between slots of one owner do not count.
constexpr bool is_copied_from(owner_id owner, const step_head& s) {
  return s.from_owner == owner && s.from_side != buffer_side::destination && s.kind != step_kind::scale &&
         s.kind != step_kind::divide && s.kind != step_kind::fill;
}

// Bytes that an owner copies out of its source fragments: all of them, and those that leave the owner.
struct source_bytes {
  std::int64_t total = 0, moved = 0;
};
template <class Class>
constexpr source_bytes source_bytes_of(const Class& c, owner_id owner) {
  source_bytes copied;
  rules::expand(c, owner, c.from.space(), [&](const step& s) {
    if (!is_copied_from(owner, step_head(s))) return;
    const std::int64_t size = bytes_of(s.where.volume(), c.wire_bits_of(s));
    copied.total += size;
    if (c.travels(s)) copied.moved += size;
  });
  return copied;
}

// Cells that the owner both wants and holds. If there are too many pairs of boxes, a search replaces the comparison of
// every pair.
template <class Class>
constexpr std::int64_t held_volume(const Class& c, const groups& wants, owner_id owner) {
  groups has = local_view(c.from, owner);
  const auto pair_volume = [&](std::span<const fragment> want, std::span<const fragment> have) {
    const auto cell = intersect(want.front().where, have.front().where);
    if (!cell) return std::int64_t{0};
    std::int64_t terms = 0;
    for (const std::int32_t term : terms_of(want))
      terms += wants_value(c, term) && find(have, owner, source_term(c, term)) != nullptr ? 1 : 0;
    return terms * cell->volume();
  };
  std::int64_t held = 0;
  const bool few = wants.ranges.size() * has.ranges.size() <= 4096 + 16 * (wants.ranges.size() + has.ranges.size());
  for (std::size_t w = 0; w < wants.ranges.size(); ++w) {
    if (few) {
      for (std::size_t h = 0; h < has.ranges.size(); ++h) held += pair_volume(wants.group(w), has.group(h));
      continue;
    }
    groups near;
    c.from.overlapping(wants.group(w).front().where, [&](const fragment& f) {
      if (f.owner == owner) near.add(f);
      return true;
    });
    near.finish();
    for (std::size_t h = 0; h < near.ranges.size(); ++h) held += pair_volume(wants.group(w), near.group(h));
  }
  return held;
}

// The fewest bytes that any plan moves to an owner of the destination.
template <class Class>
constexpr std::int64_t least_to(const Class& c, owner_id owner) {
  const groups wants = local_view(c.to, owner);
  std::int64_t wanted = 0;
  for (std::size_t w = 0; w < wants.ranges.size(); ++w)
    for (const std::int32_t term : terms_of(wants.group(w)))
      if (wants_value(c, term)) wanted += wants.group(w).front().where.volume();
  return bytes_of(wanted - (c.one_space() ? held_volume(c, wants, owner) : 0), c.wire_bits());
}

// The fewest bytes that any plan moves to combine terms and deliver the results, over all pairs of a source and a
// destination box. A source box counts at its first owner only.
template <class Class>
constexpr std::int64_t least_for_terms_of(const Class& c, owner_id owner) {
  std::int64_t bound = 0;
  const groups own = local_view(c.from, owner);
  for (std::size_t g = 0; g < own.ranges.size(); ++g) {
    const box& where = own.group(g).front().where;
    const groups sharing = overlapping(c.from, where);
    const auto least = std::min_element(sharing.all.begin(), sharing.all.end(),
                                        [](const fragment& a, const fragment& b) { return a.owner < b.owner; });
    if (least->owner != owner) continue;
    const groups targets = overlapping(c.to, where);
    for (std::size_t t = 0; t < targets.ranges.size(); ++t) {
      const reduction_rule rule = rule_for(c, sharing.all, targets.group(t));
      if (rule.receivers.empty()) continue;
      bound += bytes_of(intersect(where, targets.group(t).front().where)->volume(), rule.cost_bits);
    }
  }
  return bound;
}

}  // namespace shardmesh::rules
