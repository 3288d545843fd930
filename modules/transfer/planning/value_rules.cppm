// SPDX-License-Identifier: Apache-2.0
// The rules by which one owner receives and sends values, and terms that travel uncombined. The sender and the receiver
// of a cell expand it on different ranks, each from its own end, and must agree without communicating. Both therefore
// answer three questions from the two distributions, which every rank has. Which owners hold the cell? Which owners
// want it and lack it? Which holder serves the i-th receiver? Neither side uses data that the other lacks. Terms that
// are combined are in `reduction_rules`. Exports nothing.
export module shardmesh.transfer:value_rules;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import :cells;
import :step;
import :transfer_class;

namespace shardmesh {

// Returns whether destination fragments of `term` receive the value. If terms travel, each receives its own; otherwise
// term 0 does.
template <class Class>
constexpr bool wants_value(const Class& c, std::int32_t term) {
  return c.mode == transfer_mode::terms || term == 0;
}

// The source's term that a destination fragment of `term` receives.
template <class Class>
constexpr std::int32_t source_term(const Class& c, std::int32_t term) {
  return c.mode == transfer_mode::terms ? term : 0;
}

// The owners that want the cells of a destination group as `term` and do not hold them.
template <class Class>
constexpr owner_list receivers_of(const Class& c, std::span<const fragment> wanted, std::int32_t term,
                                  const owner_list& holders) {
  const owner_list owners = owners_of(wanted, term);
  if (!c.one_space()) return owners;
  owner_list receivers;
  for (const owner_id owner : owners)
    if (!contains(holders, owner)) receivers.push_back(owner);
  return receivers;
}

// The holder from which `owner` takes a cell: the i-th receiver takes it from holder i mod k of the k holders.
// Precondition: `owner` is in `wanting`. Cost: O(holders * log wanting), because the list of receivers is not made.
template <class Class>
constexpr owner_id sender_to(const Class& c, owner_id owner, const owner_list& wanting, const owner_list& holders) {
  auto position = std::lower_bound(wanting.begin(), wanting.end(), owner) - wanting.begin();
  if (c.one_space()) {
    if (contains(holders, owner)) return owner;
    for (const owner_id holder : holders)
      if (holder < owner && contains(wanting, holder)) --position;
  }
  return holders[static_cast<std::size_t>(position) % holders.size()];
}

// The work of a destination owner that needs no peer. It fills other terms with the identity, copies repeated boxes
// from their first slot to the others, and scales the one term of an average.
template <class Class, class Emit>
constexpr void finish_destination(const Class& c, owner_id owner, std::span<const fragment> own,
                                  std::span<const fragment> wanted, Emit&& emit) {
  const reduce_op op = c.to.reduction();
  const fragment* first = nullptr;  // the first slot of this term
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

template <class Class, class Emit>
constexpr void receive_values(const Class& c, owner_id owner, Emit&& emit) {
  const groups own = local_view(c.to, owner);
  for (std::size_t g = 0; g < own.ranges.size(); ++g) {
    const box& where = own.group(g).front().where;
    const groups sharing = overlapping(c.to, where);
    const groups sources = overlapping(c.from, where);
    finish_destination(c, owner, own.group(g), sharing.all, emit);
    for (const std::int32_t term : terms_of(own.group(g))) {
      if (!wants_value(c, term)) continue;
      const fragment& target = *find(own.group(g), owner, term);
      const owner_list wanting = owners_of(sharing.all, term);
      const std::int32_t from_term = source_term(c, term);
      for (std::size_t s = 0; s < sources.ranges.size(); ++s) {
        const auto source = sources.group(s);
        const owner_list holders = owners_of(source, from_term);
        if (holders.empty()) continue;
        const box cell = *intersect(source.front().where, where);
        const owner_id sender = sender_to(c, owner, wanting, holders);
        emit(copy_step(step_phase::gather, cell, end_in(*find(source, sender, from_term), buffer_side::source, cell),
                       end_in(target, buffer_side::destination, cell), from_term));
      }
    }
  }
}

template <class Class, class Emit>
constexpr void send_values(const Class& c, owner_id owner, Emit&& emit) {
  const groups own = local_view(c.from, owner);
  for (std::size_t g = 0; g < own.ranges.size(); ++g) {
    const box& where = own.group(g).front().where;
    const groups sharing = overlapping(c.from, where);
    const groups targets = overlapping(c.to, where);
    for (const std::int32_t from_term : terms_of(own.group(g))) {
      const owner_list holders = owners_of(sharing.all, from_term);
      const fragment& source = *find(own.group(g), owner, from_term);
      for (std::size_t t = 0; t < targets.ranges.size(); ++t) {
        const auto target = targets.group(t);
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

}  // namespace shardmesh
