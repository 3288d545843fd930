// SPDX-License-Identifier: Apache-2.0
// Checks transfers, groups the equal ones, and answers the queries of a plan.
module;
#include <fmt/format.h>
#include <plural.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <shardmesh/try.hpp>
module shardmesh.transfer;

import :expand;
import :schedule;

namespace shardmesh {

// One table per transfer class.
using owner_tables = std::shared_ptr<const std::vector<std::shared_ptr<const owner_steps>>>;

struct transfer_plan::state {
  std::vector<tensor_transfer> transfers;
  plan_options options;
  std::vector<transfer_class> classes;
  std::vector<std::size_t> class_of;  // per transfer
  std::vector<std::size_t> uses;      // transfers per class
  std::shared_ptr<const plan_clock> clock;

  // Tables of recently requested owners. A large table stays only as long as another holder, such as a `rank_plan`,
  // keeps it.
  struct kept_tables {
    owner_id owner = 0;
    owner_space space = owner_space::ranks;
    std::weak_ptr<const owner_tables::element_type> tables;
    owner_tables small;  // keeps small tables alive
  };
  mutable std::mutex kept_lock;
  mutable std::vector<kept_tables> kept;  // the latest first

  owner_tables tables_of(owner_id owner, owner_space space) const;

  // The bytes copied out of one owner's source fragments. They are counted only for requested owners.
  struct source_bytes {
    std::vector<std::pair<owner_id, std::int64_t>> to;  // ascending by receiver; traffic only
    std::int64_t at_home = 0;                           // copies within the owner
    std::int64_t moved = 0;
  };
  using shared_source_bytes = std::shared_ptr<const source_bytes>;
  mutable std::mutex counted_lock;
  mutable std::map<owner_id, shared_source_bytes> counted;
  mutable std::size_t counted_pairs = 0;

  shared_source_bytes source_bytes_of(owner_id owner) const;
  source_bytes count_source_bytes(owner_id owner) const;

  mutable std::once_flag totals_once, bound_once, digest_once;
  mutable std::int64_t total = 0, moved = 0, bound = 0;
  mutable digest128 digest;

  void count_totals() const;
};

namespace {

constexpr std::size_t named_boxes = 100;

error at_transfer(error e, std::size_t index) {
  e.message = fmt::format("transfer {}: {}", index, e.message);
  return e;
}

// Rejects overlaps of different boxes, on either side.
result<cover_report> check_overlaps(const distribution& d, const char* side) {
  cover_report report = check_cover(d, 1'000'000);
  std::vector<const cover_problem*> overlaps;
  for (const cover_problem& p : report.problems)
    if (p.kind == cover_kind::overlap) overlaps.push_back(&p);
  if (overlaps.empty()) return report;
  error e = fail(errc::overlap, fmt::format("{} different boxes of the {} overlap, the first: {}", overlaps.size() * 2,
                                            side, to_string(*overlaps.front())));
  for (std::size_t i = 0; i < std::min(overlaps.size(), named_boxes); ++i) {
    e.boxes.push_back(overlaps[i]->where);
    for (const owner_id owner : {overlaps[i]->first, overlaps[i]->second})
      if (std::find(e.ranks.begin(), e.ranks.end(), owner) == e.ranks.end()) e.ranks.push_back(owner);
  }
  return e;
}

// Finds cells that `to` wants and no owner of `from` holds. A source may lack cells that `to` does not want, because it
// may be a part of a checkpoint.
result<void> check_gaps(const cover_report& source, const distribution& to) {
  constexpr std::size_t most_missing = 10'000;  // the search stops at this many
  std::vector<box> missing;
  for (const cover_problem& p : source.problems) {
    if (p.kind != cover_kind::gap) continue;
    to.overlapping(p.where, [&](const fragment& f) {
      const box cell = *intersect(f.where, p.where);
      if (std::find(missing.begin(), missing.end(), cell) == missing.end()) missing.push_back(cell);
      return missing.size() < most_missing;
    });
    if (missing.size() >= most_missing) break;
  }
  if (missing.empty() && !source.total_is_exact)  // the search ended early
    return fail(errc::gap,
                "the source has too many gaps and overlaps to determine whether it holds the requested boxes");
  if (missing.empty()) return {};
  error e = fail(errc::gap, fmt::format("{}{} held by no owner", missing.size() >= most_missing ? "at least " : "",
                                        detail::counted(missing.size(), "requested box is", "requested boxes are")));
  missing.resize(std::min(missing.size(), named_boxes));
  e.boxes = std::move(missing);
  return e;
}

// Rejects sub-byte elements that are cut inside a byte.
result<void> check_alignment(const distribution& d, dtype type) {
  if (bits(type) % 8 == 0) return {};
  std::optional<error> problem;
  d.for_each_owner([&](owner_id owner) {
    if (problem) return;
    d.fragments_of(owner, [&](const fragment& f) {
      const bool aligned = is_byte_aligned(f.where, f.local_offsets, d.global_shape(), type);
      if (!aligned)
        problem = fail(errc::unaligned, fmt::format("{} elements are cut inside a byte", name(type)))
                      .with_rank(owner)
                      .with_box(f.where);
      return aligned;
    });
  });
  if (problem) return *problem;
  return {};
}

result<void> check_dtypes(const tensor_transfer& t, const plan_options& options) {
  return check_cast(t.from_type, t.to_type, options.allow_narrowing);
}

result<transfer_class> make_class(const tensor_transfer& t, const plan_options& options) {
  if (t.from.global_shape() != t.to.global_shape())
    return fail(errc::shape_mismatch, "the source and the destination differ in shape")
        .with_values(to_string(t.from.global_shape()), to_string(t.to.global_shape()));
  SHARDMESH_TRY(check_dtypes(t, options));
  SHARDMESH_TRY(check_alignment(t.from, t.from_type));
  SHARDMESH_TRY(check_alignment(t.to, t.to_type));
  if (!has_countable_bytes(t.from.global_shape(), t.from_type, t.to_type))
    return fail(errc::overflow,
                fmt::format("the bytes of shape {} do not fit in 64 bits", to_string(t.from.global_shape())));
  transfer_class c{t.from, t.to, t.from_type, t.to_type, mode_between(t.from, t.to), options.reduce_grain_bytes};
  if (t.from.reduction() != reduce_op::none) {
    if (t.from.space() == owner_space::items) return fail(errc::unsupported, "items cannot hold terms of a reduction");
    if (c.mode == transfer_mode::reduce && bits(t.from_type) % 8 != 0)
      return fail(errc::unsupported, fmt::format("values of {} cannot be reduced", name(t.from_type)));
  }
  if (!t.from.is_complete()) {
    SHARDMESH_TRY(const cover_report report, check_overlaps(t.from, "source"));
    SHARDMESH_TRY(check_gaps(report, t.to));
  }
  if (!t.to.is_complete()) SHARDMESH_TRY(check_overlaps(t.to, "destination"));
  return c;
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

transfer_plan::state::source_bytes transfer_plan::state::count_source_bytes(owner_id owner) const {
  source_bytes made;
  std::map<owner_id, std::int64_t> to;
  const expansion_memory memory;
  for (std::size_t i = 0; i < classes.size(); ++i) {
    const transfer_class& c = classes[i];
    const auto times = static_cast<std::int64_t>(uses[i]);
    // Steps often come grouped by peer.
    owner_id peer = -1;
    std::int64_t* sum = nullptr;
    const auto count = [&](const step_head& s, std::int64_t volume) {
      if (!rules::is_copied_from(owner, s)) return;
      const std::int64_t size = rules::bytes_of(volume, c.wire_bits_to(s.to_side)) * times;
      if (!transfer_class::travels(s.kind, s.from_side, s.to_side, s.from_owner != s.to_owner, c.one_space())) {
        made.at_home += size;
        return;
      }
      made.moved += size;
      if (sum == nullptr || peer != s.to_owner) sum = &to[peer = s.to_owner];
      *sum += size;
    };
    if (const auto computed = arithmetic_steps(c, owner, c.from.space()))
      computed->steps.for_each([&](std::size_t, const step_head& s, std::int64_t volume) { count(s, volume); });
    else
      expand(c, owner, c.from.space(), [&](const step& s) { count(step_head(s), s.where.volume()); });
  }
  made.to.assign(to.begin(), to.end());
  return made;
}

transfer_plan::state::shared_source_bytes transfer_plan::state::source_bytes_of(owner_id owner) const {
  constexpr std::size_t most_pairs = std::size_t{1} << 22;
  {
    const std::lock_guard locked(counted_lock);
    if (const auto found = counted.find(owner); found != counted.end()) return found->second;
  }
  auto made = std::make_shared<const source_bytes>(count_source_bytes(owner));
  const std::lock_guard locked(counted_lock);
  if (counted_pairs + made->to.size() > most_pairs) {
    counted.clear();
    counted_pairs = 0;
  }
  if (counted.emplace(owner, made).second) counted_pairs += made->to.size();
  return made;
}

void transfer_plan::state::count_totals() const {
  std::set<owner_id> owners;
  for (const transfer_class& c : classes) c.from.for_each_owner([&](owner_id owner) { owners.insert(owner); });
  for (const owner_id owner : owners) {
    const shared_source_bytes mine = source_bytes_of(owner);
    total += mine->at_home + mine->moved;
    moved += mine->moved;
  }
}

owner_tables transfer_plan::state::tables_of(owner_id owner, owner_space space) const {
  constexpr std::size_t most_owners = 8;
  constexpr std::size_t most_bytes = std::size_t{32} << 20;  // per owner
  {
    const std::lock_guard locked(kept_lock);
    for (std::size_t i = 0; i < kept.size(); ++i)
      if (kept[i].owner == owner && kept[i].space == space) {
        std::rotate(kept.begin(), kept.begin() + static_cast<std::ptrdiff_t>(i),
                    kept.begin() + static_cast<std::ptrdiff_t>(i) + 1);
        if (auto tables = kept.front().tables.lock()) return tables;
        kept.erase(kept.begin());
        break;
      }
  }
  auto made = std::make_shared<std::vector<std::shared_ptr<const owner_steps>>>();
  std::size_t size_bytes = 0;
  const expansion_memory memory;
  for (const transfer_class& c : classes) {
    const std::size_t like_the_last =
        made->empty() || made->back()->steps.is_computed() ? 0 : made->back()->steps.size();
    made->push_back(std::make_shared<const owner_steps>(steps_of(c, owner, space, like_the_last)));
    size_bytes += made->back()->steps.memory_bytes();
  }
  const std::lock_guard locked(kept_lock);
  if (kept.size() >= most_owners) kept.pop_back();
  kept.insert(kept.begin(), {owner, space, made, size_bytes > most_bytes ? nullptr : made});
  return made;
}

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

// --- rank_plan ---

namespace {

// Traffic summed by peer. A plan may have millions of pieces, so the usual small peer numbers index an array.
class traffic_by_peer {
 public:
  peer_traffic& of(owner_id peer) {
    constexpr std::size_t most_listed = std::size_t{1} << 16;
    const auto place = static_cast<std::size_t>(peer);
    if (place >= most_listed) return others_[peer];
    if (place >= listed_.size()) listed_.resize(std::max(place + 1, 2 * listed_.size()));
    return listed_[place];
  }
  std::vector<peer_traffic> list() const {
    std::vector<peer_traffic> made;
    const auto add = [&](owner_id peer, peer_traffic one) {
      one.peer = peer;
      if (one.pieces > 0) made.push_back(one);
    };
    for (std::size_t i = 0; i < listed_.size(); ++i) add(static_cast<owner_id>(i), listed_[i]);
    for (const auto& [peer, one] : others_) add(peer, one);
    return made;
  }

 private:
  std::vector<peer_traffic> listed_;
  std::map<owner_id, peer_traffic> others_;
};

}  // namespace

std::vector<peer_traffic> rank_plan::traffic(bool sends) const {
  traffic_by_peer peers;
  for (std::size_t t = 0; t < parts_.size(); ++t) {
    const owner_steps& part = *parts_[t];
    part.steps.for_each([&](std::size_t, const step_head& s, std::int64_t volume) {
      if (!part.travels(s) || part.is_sent(s) != sends) return;
      peer_traffic& one = peers.of(sends ? s.to_owner : s.from_owner);
      ++one.pieces;
      one.size_bytes += volume * (s.to_side == buffer_side::staging ? source_bits_[t] : wire_bits_[t]) / 8;
    });
  }
  return peers.list();
}

std::vector<peer_traffic> rank_plan::sends() const {
  return traffic(true);
}
std::vector<peer_traffic> rank_plan::receives() const {
  return traffic(false);
}

std::int64_t rank_plan::sent_bytes() const {
  std::int64_t sum = 0;
  for (const auto& part : parts_) sum += part->sent_bytes;
  return sum;
}

std::int64_t rank_plan::received_bytes() const {
  std::int64_t sum = 0;
  for (const auto& part : parts_) sum += part->received_bytes;
  return sum;
}

std::int64_t rank_plan::held_bytes() const {
  std::int64_t sum = 0;
  for (const auto& part : parts_) sum += part->held_bytes;
  return sum;
}

std::int64_t rank_plan::wanted_bytes() const {
  std::int64_t sum = 0;
  for (const auto& part : parts_) sum += part->wanted_bytes;
  return sum;
}

void rank_plan::leave_out(std::size_t transfer) {
  auto part = std::make_shared<owner_steps>();
  part->held_bytes = parts_[transfer]->held_bytes;
  part->wanted_bytes = parts_[transfer]->wanted_bytes;
  parts_[transfer] = std::move(part);
}

std::int64_t rank_plan::budget_bytes() const {
  constexpr std::int64_t always = std::int64_t{32} << 20;
  if (!clock_) return always;
  return clock_->memory_bytes > 0 ? clock_->memory_bytes : always + (held_bytes() + wanted_bytes()) / 16;
}

// The memory of one round. An upper bound, because gathered and delivered pieces are not alive together.
std::int64_t rank_plan::largest_bytes(bool messages) const {
  std::int64_t sum = 0;
  for (const auto& part : parts_) sum += part->staging_bytes + (messages ? part->sent_bytes + part->received_bytes : 0);
  return sum;
}

}  // namespace shardmesh
