// SPDX-License-Identifier: Apache-2.0
// The rules by which the terms of a Partial are combined and delivered, applied to one owner. The terms of a cell meet
// at one owner, the reducer, which sends the result to every receiver. Then (terms - 1) terms and (receivers - 1)
// results travel, which is the minimum; a tree would save rounds, not bytes. The reducer is an owner with the least to
// receive and send. If several owners cost the same, the cell is cut and each reduces a part. The all-reduce of one
// large tensor thus becomes the ring's reduce-scatter and all-gather, without a special case. Values are in
// `value_rules`. Exports nothing.
export module shardmesh.transfer:reduction_rules;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import :cells;
import :step;
import :transfer_class;
import :value_rules;

namespace shardmesh {

// The reduction of one source group's terms into the values of one destination group.
struct reduction_rule {
  std::vector<std::int32_t> terms;
  std::vector<owner_list> holders;  // per term
  owner_list receivers;
  owner_list reducers;         // the cheapest, ascending
  std::int64_t cost_bits = 0;  // bits moved per element of the cell
};

template <class Class>
constexpr reduction_rule rule_for(const Class& c, std::span<const fragment> source, std::span<const fragment> wanted) {
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

// Emits the steps of one part of a cell in which `owner` takes part.
template <class Class, class Emit>
constexpr void reduce_part(const Class& c, const reduction_rule& rule, std::span<const fragment> source,
                           std::span<const fragment> wanted, const box& part, std::size_t index, owner_id owner,
                           owner_space space, Emit&& emit) {
  const owner_id reducer = rule.reducers[index];
  const bool as_source = space == c.from.space();
  for (std::size_t t = 0; t < rule.terms.size(); ++t) {
    const owner_list& holders = rule.holders[t];
    const owner_id sender = contains(holders, reducer) ? reducer : holders[index % holders.size()];
    if (!as_source || (owner != reducer && owner != sender)) continue;
    step s =
        copy_step(step_phase::gather, part, end_in(*find(source, sender, rule.terms[t]), buffer_side::source, part),
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

// Cuts a cell into one part per reducer if the parts are large enough, along the first dimension that is long enough.
template <class Class, class Emit>
constexpr void reduce_cell(const Class& c, std::span<const fragment> source, std::span<const fragment> wanted,
                           owner_id owner, owner_space space, Emit&& emit) {
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

template <class Class, class Emit>
constexpr void expand_reduction(const Class& c, owner_id owner, owner_space space, Emit&& emit) {
  // If the owner holds a term of a cell *and* wants the result, the cell must be expanded once. The first loop expands
  // every cell that the owner holds a term of. The second expands only the wanted cells that the first did not.
  groups own_source;
  if (space == c.from.space()) own_source = local_view(c.from, owner);
  for (std::size_t g = 0; g < own_source.ranges.size(); ++g) {
    const box& where = own_source.group(g).front().where;
    const groups sharing = overlapping(c.from, where);
    const groups targets = overlapping(c.to, where);
    for (std::size_t t = 0; t < targets.ranges.size(); ++t)
      reduce_cell(c, sharing.all, targets.group(t), owner, space, emit);
  }
  if (space != c.to.space()) return;
  const groups own = local_view(c.to, owner);
  for (std::size_t g = 0; g < own.ranges.size(); ++g) {
    const box& where = own.group(g).front().where;
    const groups sharing = overlapping(c.to, where);
    const groups sources = overlapping(c.from, where);
    finish_destination(c, owner, own.group(g), sharing.all, emit);
    for (std::size_t s = 0; s < sources.ranges.size(); ++s) {
      const auto source = sources.group(s);
      const bool done = std::any_of(own_source.all.begin(), own_source.all.end(),
                                    [&](const fragment& f) { return f.where == source.front().where; });
      if (!done) reduce_cell(c, source, sharing.all, owner, space, emit);
    }
  }
}

}  // namespace shardmesh
