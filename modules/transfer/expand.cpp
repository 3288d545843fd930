// SPDX-License-Identifier: Apache-2.0
// The rules of who takes what from whom, applied to one owner. Sender and receiver apply the same rules to the same
// distributions, so they agree without talking.
module;
#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>
module shardmesh.transfer;

import :expand;
import :fragment_groups;
import :schedule;

namespace shardmesh {
namespace {

bool contains(const owner_list& sorted, owner_id owner) {
  return std::binary_search(sorted.begin(), sorted.end(), owner);
}

step_end end_in(const fragment& f, buffer_side side, const box& cell) {
  extents offsets = f.local_offsets;
  for (std::size_t d = 0; d < offsets.rank(); ++d) offsets[d] += cell.offsets[d] - f.where.offsets[d];
  return {f.owner, side, f.slot, offsets};
}

step_end staging_of(owner_id owner, const box& cell) {
  return {owner, buffer_side::staging, 0, extents::filled(cell.rank(), 0)};
}

step copy_step(step_phase phase, const box& cell, step_end from, step_end to, std::int32_t term) {
  step s;
  s.phase = phase;
  s.where = cell;
  s.term = term;
  s.from = std::move(from);
  s.to = std::move(to);
  return s;
}

// Destination fragments of this term want the value: each of its own term when terms travel, else term 0.
bool wants_value(const transfer_class& c, std::int32_t term) {
  return c.mode == transfer_mode::terms || term == 0;
}

// The source's term that a destination fragment of `term` takes.
std::int32_t source_term(const transfer_class& c, std::int32_t term) {
  return c.mode == transfer_mode::terms ? term : 0;
}

// Who wants the cells of a destination group as `term`, without those that hold them.
owner_list receivers_of(const transfer_class& c, std::span<const fragment> wanted, std::int32_t term,
                        const owner_list& holders) {
  owner_list receivers = owners_of(wanted, term);
  if (c.one_space()) std::erase_if(receivers, [&](owner_id o) { return contains(holders, o); });
  return receivers;
}

// What a destination owner does without anybody: fills other terms with the identity, repeats a box that it has in
// several slots, and scales the one term of an average.
void finish_destination(const transfer_class& c, owner_id owner, std::span<const fragment> own,
                        std::span<const fragment> wanted, function_ref<void(const step&)> emit) {
  const reduce_op op = c.to.reduction();
  const fragment* first = nullptr;  // of this term
  for (const fragment& f : own) {
    const step_end here = end_in(f, buffer_side::destination, f.where);
    if (first == nullptr || first->term != f.term)
      first = &f;
    else if (wants_value(c, f.term))
      emit(copy_step(step_phase::repeat, f.where, end_in(*first, buffer_side::destination, f.where), here, f.term));
    step last =
        copy_step(step_phase::finish, f.where, {owner, buffer_side::destination, f.slot, here.offsets}, here, f.term);
    last.reduction = op;
    if (!wants_value(c, f.term)) {
      last.kind = step_kind::fill;
      emit(last);
    } else if (op == reduce_op::avg && c.mode != transfer_mode::terms) {
      last.kind = step_kind::scale;
      last.factor = c.to.divisor() != 0 ? c.to.divisor() : static_cast<std::int64_t>(terms_of(wanted).size());
      if (last.factor != 1) emit(last);
    }
  }
}

// --- values, and terms that keep their number ---
//
// A receiver and its giver expand the same cell on different ranks, from their own ends, and must come to the same
// answer without a word between them. Both therefore ask the same three questions of the two distributions, which every
// rank has: who holds the cell, who wants it and lacks it, and which of the holders is the i-th receiver's. Neither
// looks at anything that only one of them knows.

void receive_values(const transfer_class& c, owner_id owner, function_ref<void(const step&)> emit) {
  const fragment_groups own = held_by(c.to, owner);
  for (std::size_t g = 0; g < own.size(); ++g) {
    const box& where = own[g].front().where;
    const fragment_groups sharing = overlapping(c.to, where);
    const fragment_groups sources = overlapping(c.from, where);
    finish_destination(c, owner, own[g], sharing.all(), emit);
    for (const std::int32_t term : terms_of(own[g])) {
      if (!wants_value(c, term)) continue;
      const fragment& target = *find(own[g], owner, term);
      const std::int32_t from_term = source_term(c, term);
      for (std::size_t s = 0; s < sources.size(); ++s) {
        const auto source = sources[s];
        const owner_list holders = owners_of(source, from_term);
        if (holders.empty()) continue;
        const box cell = *intersect(source.front().where, where);
        owner_id giver = owner;
        if (!c.one_space() || !contains(holders, owner)) {
          const owner_list receivers = receivers_of(c, sharing.all(), term, holders);
          const auto position = std::lower_bound(receivers.begin(), receivers.end(), owner) - receivers.begin();
          giver = holders[static_cast<std::size_t>(position) % holders.size()];
        }
        emit(copy_step(step_phase::gather, cell, end_in(*find(source, giver, from_term), buffer_side::source, cell),
                       end_in(target, buffer_side::destination, cell), from_term));
      }
    }
  }
}

void send_values(const transfer_class& c, owner_id owner, function_ref<void(const step&)> emit) {
  const fragment_groups own = held_by(c.from, owner);
  for (std::size_t g = 0; g < own.size(); ++g) {
    const box& where = own[g].front().where;
    const fragment_groups sharing = overlapping(c.from, where);
    const fragment_groups targets = overlapping(c.to, where);
    for (const std::int32_t from_term : terms_of(own[g])) {
      const owner_list holders = owners_of(sharing.all(), from_term);
      const fragment& source = *find(own[g], owner, from_term);
      for (std::size_t t = 0; t < targets.size(); ++t) {
        const auto target = targets[t];
        for (const std::int32_t term : terms_of(target)) {
          if (!wants_value(c, term) || source_term(c, term) != from_term) continue;
          const owner_list receivers = receivers_of(c, target, term, holders);
          const box cell = *intersect(where, target.front().where);
          for (std::size_t i = 0; i < receivers.size(); ++i)
            if (holders[i % holders.size()] == owner)
              emit(copy_step(step_phase::gather, cell, end_in(source, buffer_side::source, cell),
                             end_in(*find(target, receivers[i], term), buffer_side::destination, cell), from_term));
        }
      }
    }
  }
}

// --- reductions ---
//
// Terms of a cell meet at one owner (the reducer), and the result goes from there to everybody: (terms - 1) and
// (receivers - 1) pieces travel, which is least; a tree would save rounds, not bytes. The reducer is chosen by what it
// would have to receive and send; where several cost the same, the cell is cut and each of them reduces a part, so that
// an all-reduce of one large tensor is the ring's reduce-scatter and all-gather without being recognised as one.

// How the terms of one source group become the values of one destination group.
struct reduction_rule {
  std::vector<std::int32_t> terms;
  std::vector<owner_list> holders;  // per term
  owner_list receivers;
  owner_list reducers;         // those with the least to receive, ascending
  std::int64_t cost_bits = 0;  // per cell
};

reduction_rule rule_for(const transfer_class& c, std::span<const fragment> source, std::span<const fragment> wanted) {
  reduction_rule rule;
  rule.terms = terms_of(source);
  std::vector<std::pair<owner_id, std::int64_t>> candidates;  // (owner, terms it holds)
  owner_list all;
  for (const std::int32_t term : rule.terms) {
    rule.holders.push_back(owners_of(source, term));
    all.insert(all.end(), rule.holders.back().begin(), rule.holders.back().end());
  }
  std::sort(all.begin(), all.end());
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i == 0 || all[i] != all[i - 1]) candidates.emplace_back(all[i], 0);
    ++candidates.back().second;
  }
  rule.receivers = owners_of(wanted, 0);
  rule.cost_bits = std::numeric_limits<std::int64_t>::max();
  for (const auto& [owner, held] : candidates) {
    const bool receives = c.one_space() && contains(rule.receivers, owner);
    const std::int64_t cost = (static_cast<std::int64_t>(rule.terms.size()) - held) * c.term_bits() +
                              (static_cast<std::int64_t>(rule.receivers.size()) - (receives ? 1 : 0)) * c.wire_bits();
    if (cost < rule.cost_bits) rule.cost_bits = cost, rule.reducers.clear();
    if (cost == rule.cost_bits) rule.reducers.push_back(owner);
  }
  return rule;
}

// The steps of one part of a cell that concern `owner`.
void reduce_part(const transfer_class& c, const reduction_rule& rule, std::span<const fragment> source,
                 std::span<const fragment> wanted, const box& part, std::size_t index, owner_id owner,
                 owner_space space, function_ref<void(const step&)> emit) {
  const owner_id reducer = rule.reducers[index];
  const bool as_source = space == c.from.space();
  for (std::size_t t = 0; t < rule.terms.size(); ++t) {
    const owner_list& holders = rule.holders[t];
    const owner_id giver = contains(holders, reducer) ? reducer : holders[index % holders.size()];
    if (!as_source || (owner != reducer && owner != giver)) continue;
    step s = copy_step(step_phase::gather, part, end_in(*find(source, giver, rule.terms[t]), buffer_side::source, part),
                       staging_of(reducer, part), rule.terms[t]);
    s.kind = t == 0 ? step_kind::copy : step_kind::accumulate;
    s.reduction = c.from.reduction();
    emit(s);
  }
  if (as_source && owner == reducer && c.from.reduction() == reduce_op::avg) {
    step s = copy_step(step_phase::average, part, staging_of(reducer, part), staging_of(reducer, part), 0);
    s.kind = step_kind::divide;
    s.factor = c.from.divisor() != 0 ? c.from.divisor() : static_cast<std::int64_t>(rule.terms.size());
    if (s.factor != 1) emit(s);
  }
  for (const owner_id receiver : rule.receivers)
    if ((as_source && owner == reducer) || (space == c.to.space() && owner == receiver))
      emit(copy_step(step_phase::deliver, part, staging_of(reducer, part),
                     end_in(*find(wanted, receiver, 0), buffer_side::destination, part), 0));
}

// Cuts a cell into one part per reducer, if parts are worth it, along its first dimension that is long enough.
void reduce_cell(const transfer_class& c, std::span<const fragment> source, std::span<const fragment> wanted,
                 owner_id owner, owner_space space, function_ref<void(const step&)> emit) {
  const box cell = *intersect(source.front().where, wanted.front().where);
  const reduction_rule rule = rule_for(c, source, wanted);
  if (rule.receivers.empty()) return;
  const std::int64_t grains = cell.volume() * c.term_bits() / 8 / std::max<std::int64_t>(c.reduce_grain_bytes, 1);
  const std::int64_t wanted_parts =
      std::clamp<std::int64_t>(grains, 1, static_cast<std::int64_t>(rule.reducers.size()));
  std::size_t along = 0;
  for (std::size_t d = 0; d < cell.rank(); ++d) {
    if (cell.sizes[d] > cell.sizes[along]) along = d;
    if (cell.sizes[d] < wanted_parts) continue;
    along = d;
    break;
  }
  const std::int64_t parts = cell.rank() == 0 ? 1 : std::min(wanted_parts, cell.sizes[along]);
  const split_rule even = split_rule::balanced();
  for (std::int64_t p = 0; p < parts; ++p) {
    box part = cell;
    if (parts > 1) {
      const index_range range = even.part(cell.sizes[along], parts, p);
      part.offsets[along] += range.begin;
      part.sizes[along] = range.size;
    }
    reduce_part(c, rule, source, wanted, part, static_cast<std::size_t>(p), owner, space, emit);
  }
}

void expand_reduction(const transfer_class& c, owner_id owner, owner_space space,
                      function_ref<void(const step&)> emit) {
  // A cell that the owner holds a term of *and* wants must be expanded once: first all that it gives, then of what it
  // wants only the cells that it had no part in.
  fragment_groups own_source;
  if (space == c.from.space()) own_source = held_by(c.from, owner);
  for (std::size_t g = 0; g < own_source.size(); ++g) {
    const box& where = own_source[g].front().where;
    const fragment_groups sharing = overlapping(c.from, where);
    const fragment_groups targets = overlapping(c.to, where);
    for (std::size_t t = 0; t < targets.size(); ++t) reduce_cell(c, sharing.all(), targets[t], owner, space, emit);
  }
  if (space != c.to.space()) return;
  const fragment_groups own = held_by(c.to, owner);
  for (std::size_t g = 0; g < own.size(); ++g) {
    const box& where = own[g].front().where;
    const fragment_groups sharing = overlapping(c.to, where);
    const fragment_groups sources = overlapping(c.from, where);
    finish_destination(c, owner, own[g], sharing.all(), emit);
    for (std::size_t s = 0; s < sources.size(); ++s) {
      const auto source = sources[s];
      const bool done = std::any_of(own_source.all().begin(), own_source.all().end(),
                                    [&](const fragment& f) { return f.where == source.front().where; });
      if (!done) reduce_cell(c, source, sharing.all(), owner, space, emit);
    }
  }
}

std::int64_t bytes_of(std::int64_t volume, std::int64_t bits) {
  return volume * bits / 8;
}

// Cells that the owner wants and has: over pairs of its boxes, or by a search when those are many.
std::int64_t held_volume(const transfer_class& c, const fragment_groups& wants, owner_id owner) {
  fragment_groups has = held_by(c.from, owner);
  const auto pair_volume = [&](std::span<const fragment> want, std::span<const fragment> have) {
    const auto cell = intersect(want.front().where, have.front().where);
    if (!cell) return std::int64_t{0};
    std::int64_t terms = 0;
    for (const std::int32_t term : terms_of(want))
      terms += wants_value(c, term) && find(have, owner, source_term(c, term)) != nullptr ? 1 : 0;
    return terms * cell->volume();
  };
  std::int64_t held = 0;
  const bool few = wants.size() * has.size() <= 4096 + 16 * (wants.size() + has.size());
  for (std::size_t w = 0; w < wants.size(); ++w) {
    if (few) {
      for (std::size_t h = 0; h < has.size(); ++h) held += pair_volume(wants[w], has[h]);
      continue;
    }
    fragment_groups near;
    c.from.overlapping(wants[w].front().where, [&](const fragment& f) {
      if (f.owner == owner) near.add(f);
      return true;
    });
    near.finish();
    for (std::size_t h = 0; h < near.size(); ++h) held += pair_volume(wants[w], near[h]);
  }
  return held;
}

}  // namespace

dtype accumulation_type(dtype type) {
  if (kind(type) == dtype_kind::floating && bits(type) < 32) return dtype::float32;
  if (type == dtype::complex32) return dtype::complex64;
  return type;
}

void expand(const transfer_class& c, owner_id owner, owner_space space, function_ref<void(const step&)> emit) {
  if (c.mode == transfer_mode::reduce) {
    expand_reduction(c, owner, space, emit);
    return;
  }
  if (space == c.to.space()) receive_values(c, owner, emit);
  if (space == c.from.space()) send_values(c, owner, emit);
}

owner_steps steps_of(const transfer_class& c, owner_id owner, owner_space space, std::size_t expected) {
  owner_steps made;
  const auto bytes_in = [&](const distribution& d, dtype type) {
    std::int64_t sum = 0;
    if (d.space() == space)
      d.fragments_of(owner, [&](const fragment& f) { return sum += bytes_of(f.where.volume(), bits(type)), true; });
    return sum;
  };
  made.held_bytes = bytes_in(c.from, c.from_type);
  made.wanted_bytes = bytes_in(c.to, c.to_type);
  made.steps = step_table(c.from.global_shape().rank());
  made.steps.reserve(expected);
  expand(c, owner, space, [&](const step& s) { made.steps.push_back(s); });
  made.steps.sort();
  const bool one_space = c.one_space();
  const std::int64_t sum_bits = bits(accumulation_type(c.from_type));
  made.sends.reserve(made.steps.size() / 2);
  made.receives.reserve(made.steps.size() / 2);
  for (std::uint32_t i = 0; i < made.steps.size(); ++i) {
    const step_table::head& s = made.steps.head_of(i);
    const std::int64_t volume = made.steps.volume(i), size = bytes_of(volume, c.wire_bits_to(s.to_side));
    if (s.to_side == buffer_side::staging && s.kind == step_kind::copy && s.to_owner == owner &&
        space == c.from.space())
      made.staging_bytes += staging_size(volume, sum_bits);
    if (!transfer_class::travels(s.kind, s.from_side, s.to_side, s.from_owner != s.to_owner, one_space)) {
      if (s.kind == step_kind::copy) made.local_bytes += size;
      continue;
    }
    const bool sends = s.from_owner == owner && space == c.from.space();
    (sends ? made.sends : made.receives).emplace_back(sends ? s.to_owner : s.from_owner, i);
    (sends ? made.sent_bytes : made.received_bytes) += size;
  }
  std::sort(made.sends.begin(), made.sends.end());
  std::sort(made.receives.begin(), made.receives.end());
  return made;
}

std::int64_t lower_bound_of(const transfer_class& c) {
  std::int64_t bound = 0;
  if (c.mode != transfer_mode::reduce) {
    c.to.for_each_owner([&](owner_id owner) {
      const fragment_groups wants = held_by(c.to, owner);
      std::int64_t wanted = 0;
      for (std::size_t w = 0; w < wants.size(); ++w)
        for (const std::int32_t term : terms_of(wants[w]))
          if (wants_value(c, term)) wanted += wants[w].front().where.volume();
      bound += bytes_of(wanted - (c.one_space() ? held_volume(c, wants, owner) : 0), c.wire_bits());
    });
    return bound;
  }
  // Every pair of a source and a destination box, met at the source box's first owner.
  c.from.for_each_owner([&](owner_id owner) {
    const fragment_groups own = held_by(c.from, owner);
    for (std::size_t g = 0; g < own.size(); ++g) {
      const box& where = own[g].front().where;
      const fragment_groups sharing = overlapping(c.from, where);
      const auto least = std::min_element(sharing.all().begin(), sharing.all().end(),
                                          [](const fragment& a, const fragment& b) { return a.owner < b.owner; });
      if (least->owner != owner) continue;
      const fragment_groups targets = overlapping(c.to, where);
      for (std::size_t t = 0; t < targets.size(); ++t) {
        const reduction_rule rule = rule_for(c, sharing.all(), targets[t]);
        if (rule.receivers.empty()) continue;
        bound += bytes_of(intersect(where, targets[t].front().where)->volume(), rule.cost_bits);
      }
    }
  });
  return bound;
}

}  // namespace shardmesh
