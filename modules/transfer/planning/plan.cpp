// SPDX-License-Identifier: Apache-2.0
// Groups the equal transfers of a plan, and answers its queries.
module;
#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <tuple>
#include <utility>
#include <vector>
module shardmesh.transfer;

import :expand;
import :plan_state;
import :schedule;
import :transfer_check;

namespace shardmesh {
namespace {

error at_transfer(error e, std::size_t index) {
  e.message = fmt::format("transfer {}: {}", index, e.message);
  return e;
}

// Makes the clock that orders the transfers in time. It depends on shapes and dtypes only, so every owner makes the
// same clock. A rank without a part in a transfer idles for that transfer's time.
std::shared_ptr<const plan_clock> make_clock(const transfer_plan::state& s) {
  constexpr std::int64_t largest_grain = std::int64_t{64} << 10;
  auto clock = std::make_shared<plan_clock>();
  clock->memory_bytes = s.options.memory_bytes;
  clock->grain_bytes = s.options.memory_bytes > 0
                           ? std::clamp<std::int64_t>(s.options.memory_bytes / 32, 1, largest_grain)
                           : largest_grain;
  for (const std::size_t i : s.class_of) {
    const transfer_class& c = s.classes[i];
    plan_clock::time t{.begin = clock->length, .one_space = c.one_space()};
    t.cut_bits = std::max(bits(c.from_type), bits(c.to_type));
    t.wire_bits = c.wire_bits();
    t.term_bits = c.term_bits();
    t.sum_bits = bits(accumulation_type(c.from_type));
    t.length =
        static_cast<long double>(box::whole(c.from.global_shape()).volume()) * static_cast<long double>(t.cut_bits) / 8;
    clock->length += t.length;
    clock->transfers.push_back(t);
  }
  return clock;
}

}  // namespace

transfer_plan::transfer_plan() {
  auto empty = std::make_shared<state>();
  empty->clock = std::make_shared<plan_clock>();
  state_ = std::move(empty);
}

std::span<const tensor_transfer> transfer_plan::transfers() const {
  return state_->transfers;
}
const plan_options& transfer_plan::options() const {
  return state_->options;
}

std::int64_t transfer_plan::bytes_total() const {
  std::call_once(state_->totals_once, [this] { state_->count_totals(); });
  return state_->total;
}

std::int64_t transfer_plan::bytes_moved() const {
  std::call_once(state_->totals_once, [this] { state_->count_totals(); });
  return state_->moved;
}

std::int64_t transfer_plan::bytes(owner_id from, owner_id to) const {
  const state::shared_source_bytes mine = state_->source_bytes_of(from);
  const auto found = std::lower_bound(mine->to.begin(), mine->to.end(), to,
                                      [](const auto& link, owner_id owner) { return link.first < owner; });
  return found != mine->to.end() && found->first == to ? found->second : 0;
}

std::int64_t transfer_plan::lower_bound() const {
  std::call_once(state_->bound_once, [this] {
    const expansion_memory memory;
    for (std::size_t i = 0; i < state_->classes.size(); ++i)
      state_->bound += lower_bound_of(state_->classes[i]) * static_cast<std::int64_t>(state_->uses[i]);
  });
  return state_->bound;
}

digest128 transfer_plan::digest() const {
  std::call_once(state_->digest_once, [this] {
    std::vector<std::int64_t> numbers{state_->options.memory_bytes, state_->options.allow_narrowing,
                                      state_->options.deterministic, state_->options.reduce_grain_bytes};
    for (const tensor_transfer& t : state_->transfers) {
      for (const distribution* d : {&t.from, &t.to}) {
        const digest128 one = d->digest();
        numbers.push_back(static_cast<std::int64_t>(one.low));
        numbers.push_back(static_cast<std::int64_t>(one.high));
      }
      numbers.push_back(static_cast<std::int64_t>(t.from_type));
      numbers.push_back(static_cast<std::int64_t>(t.to_type));
    }
    state_->digest = digest_of(numbers);
  });
  return state_->digest;
}

rank_plan transfer_plan::for_owner(owner_id owner, owner_space space) const {
  rank_plan made;
  made.owner_ = owner;
  made.space_ = space;
  made.clock_ = state_->clock;
  const owner_tables tables = state_->tables_of(owner, space);
  made.tables_ = tables;
  for (const std::size_t i : state_->class_of) {
    made.parts_.push_back((*tables)[i]);
    made.wire_bits_.push_back(state_->classes[i].wire_bits());
    made.source_bits_.push_back(state_->classes[i].term_bits());
  }
  return made;
}

result<transfer_plan> plan(std::vector<tensor_transfer> transfers, plan_options options) {
  auto s = std::make_shared<transfer_plan::state>();
  s->options = options;
  // A model has a few hundred tensors of a dozen layouts. Checks and tables are therefore made once per class of equal
  // transfers. An address finds the same distribution at no cost; a digest finds an equal one.
  std::map<std::tuple<std::uintptr_t, std::uintptr_t, dtype, dtype>, std::size_t> known;
  std::map<std::pair<digest128, std::tuple<digest128, dtype, dtype>>, std::size_t> known_lists;
  for (std::size_t i = 0; i < transfers.size(); ++i) {
    const tensor_transfer& t = transfers[i];
    const auto [entry, is_new] =
        known.try_emplace({t.from.identity(), t.to.identity(), t.from_type, t.to_type}, s->classes.size());
    if (is_new) {
      // A description that was made twice is one class.
      const auto [twin, is_first] = known_lists.try_emplace(
          {t.from.description_digest(), {t.to.description_digest(), t.from_type, t.to_type}}, s->classes.size());
      entry->second = twin->second;
      if (is_first) {
        auto made = make_class(t, options);
        if (!made) return at_transfer(std::move(made).error(), i);
        s->classes.push_back(*std::move(made));
        s->uses.push_back(0);
      }
    }
    s->class_of.push_back(entry->second);
    ++s->uses[entry->second];
  }
  s->transfers = std::move(transfers);
  s->clock = make_clock(*s);
  transfer_plan made;
  made.state_ = std::move(s);
  return made;
}

}  // namespace shardmesh
