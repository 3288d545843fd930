// SPDX-License-Identifier: Apache-2.0
// The sends, receives, and kept boxes of each rank between two static layouts, as constants, by the planner's own
// rules. `static_transfer::plan` makes the run-time plan, which an executor carries out.
export module shardmesh.transfer:static_transfer;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import :cells;
import :owner_part;
import :plan;
import :rank_plan;
import :step;
import :step_table;
import :transfer_class;

export namespace shardmesh {

/// A box of the global tensor that a rank sends to or receives from a peer.
struct moved_box {
  owner_id peer = 0;
  box where;
  friend constexpr bool operator==(const moved_box&, const moved_box&) = default;
};

}  // namespace shardmesh

namespace shardmesh::detail {

// The fragments of a static layout, rank by rank: the result of `distribute` as a table that is computed once.
template <compile_time_layout Layout>
constexpr std::vector<fragment> make_fragments() {
  std::vector<fragment> made;
  for (std::int64_t r = 0; r < Layout::size(); ++r)
    for (const placed_box& b : Layout::boxes(r))
      made.push_back({b.where, static_cast<owner_id>(r), 0, b.local_offsets, Layout::term(r)});
  return made;
}
template <std::size_t Size, class T>
constexpr std::array<T, Size> to_fixed(const std::vector<T>& values) {
  std::array<T, Size> fixed{};
  std::copy(values.begin(), values.end(), fixed.begin());
  return fixed;
}
template <compile_time_layout Layout>
inline constexpr auto fragment_table = to_fixed<make_fragments<Layout>().size()>(make_fragments<Layout>());

// A static layout with the interface of `distribution` that the transfer rules need.
template <compile_time_layout Layout>
struct static_distribution {
  constexpr extents global_shape() const { return Layout::shape(); }
  constexpr owner_space space() const { return owner_space::ranks; }
  constexpr reduce_op reduction() const { return Layout::reduction(); }
  constexpr std::int64_t divisor() const { return Layout::divisor(); }
  constexpr std::int32_t terms() const { return Layout::terms(); }

  template <class Visit>
  constexpr void fragments_of(owner_id owner, Visit&& visit) const {
    const auto& table = fragment_table<Layout>;
    auto f = std::partition_point(table.begin(), table.end(), [&](const fragment& g) { return g.owner < owner; });
    for (; f != table.end() && f->owner == owner; ++f)
      if (!visit(*f)) return;
  }
  template <class Visit>
  constexpr void overlapping(const box& where, Visit&& visit) const {
    for (const fragment& f : fragment_table<Layout>)
      if (touches(f.where, where) && !visit(f)) return;
  }

 private:
  // As `intersect`, without making the box, because every fragment is tested.
  static constexpr bool touches(const box& a, const box& b) {
    for (std::size_t d = 0; d < a.rank(); ++d)
      if (a.offsets[d] >= b.end(d) || b.offsets[d] >= a.end(d)) return false;
    return true;
  }
};

template <compile_time_layout Layout, dtype Type>
constexpr bool is_layout_byte_aligned() {
  if (bits(Type) % 8 == 0) return true;
  for (const fragment& f : fragment_table<Layout>)
    if (!is_byte_aligned(f.where, f.local_offsets, Layout::shape(), Type)) return false;
  return true;
}

// The transfer class of two static layouts.
template <compile_time_layout From, compile_time_layout To, dtype Type>
inline constexpr basic_transfer_class<static_distribution<From>, static_distribution<To>> static_class{
    {},
    {},
    Type,
    Type,
    mode_between(static_distribution<From>(), static_distribution<To>()),
    plan_options().reduce_grain_bytes};

// The sizes of the arrays of one rank's part, and the part itself.
struct part_sizes {
  std::size_t steps = 0, sends = 0, receives = 0, kept = 0;
};
template <std::size_t Steps, std::size_t Sends, std::size_t Receives, std::size_t Kept>
struct static_part {
  std::array<step, Steps> steps{};
  std::array<moved_box, Sends> sends{};
  std::array<std::int64_t, Sends> sent_bytes{};  // of each send
  std::array<moved_box, Receives> receives{};
  std::array<box, Kept> kept{};
};

// Returns whether a step copies from the rank's old part of the tensor to its new one.
constexpr bool is_kept(const step_head& s) {
  return s.kind == step_kind::copy && s.from_owner == s.to_owner && s.from_side == buffer_side::source &&
         s.to_side == buffer_side::destination;
}
constexpr part_sizes sizes_of(const owner_steps& part) {
  part_sizes sizes{.steps = part.steps.size()};
  part.steps.for_each([&](std::size_t, const step_head& s, std::int64_t) {
    if (part.travels(s)) ++(part.is_sent(s) ? sizes.sends : sizes.receives);
    sizes.kept += is_kept(s) ? 1 : 0;
  });
  return sizes;
}
template <std::size_t Steps, std::size_t Sends, std::size_t Receives, std::size_t Kept, class Class>
constexpr auto make_part(const Class& c, const owner_steps& part) {
  static_part<Steps, Sends, Receives, Kept> made;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < Steps; ++i) {
    made.steps[i] = part.steps[i];
    if (is_kept(part.steps.head_of(i))) made.kept[kept++] = made.steps[i].where;
  }
  const auto sends = part.sends(), receives = part.receives();
  for (std::size_t i = 0; i < Sends; ++i) {
    const step& sent = made.steps[sends[i].second];
    made.sends[i] = {sends[i].first, sent.where};
    made.sent_bytes[i] = rules::bytes_of(sent.where.volume(), c.wire_bits_of(sent));
  }
  for (std::size_t i = 0; i < Receives; ++i)
    made.receives[i] = {receives[i].first, made.steps[receives[i].second].where};
  return made;
}
template <compile_time_layout From, compile_time_layout To, dtype Type, owner_id Rank>
inline constexpr part_sizes sizes_of_rank =
    sizes_of(rules::steps_of(static_class<From, To, Type>, Rank, owner_space::ranks));
template <compile_time_layout From, compile_time_layout To, dtype Type, owner_id Rank>
inline constexpr auto part_of_rank =
    make_part<sizes_of_rank<From, To, Type, Rank>.steps, sizes_of_rank<From, To, Type, Rank>.sends,
              sizes_of_rank<From, To, Type, Rank>.receives, sizes_of_rank<From, To, Type, Rank>.kept>(
        static_class<From, To, Type>, rules::steps_of(static_class<From, To, Type>, Rank, owner_space::ranks));

template <class Part>
constexpr std::int64_t bytes_to(const Part& part, owner_id receiver) {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < part.sends.size(); ++i) sum += part.sends[i].peer == receiver ? part.sent_bytes[i] : 0;
  return sum;
}

// Bytes of all ranks together. Each rank is a separate constant evaluation, so the compiler's step limit applies per
// rank.
struct static_totals {
  std::int64_t total = 0, moved = 0, least = 0;
};
template <class Class>
constexpr static_totals totals_at(const Class& c, owner_id rank) {
  const rules::source_bytes copied = rules::source_bytes_of(c, rank);
  const bool reduces = c.mode == transfer_mode::reduce;
  return {copied.total, copied.moved, reduces ? rules::least_for_terms_of(c, rank) : rules::least_to(c, rank)};
}
template <compile_time_layout From, compile_time_layout To, dtype Type, owner_id Rank>
inline constexpr static_totals totals_of_rank = totals_at(static_class<From, To, Type>, Rank);

constexpr static_totals sum_of(std::initializer_list<static_totals> parts) {
  static_totals sum;
  for (const static_totals& one : parts) {
    sum.total += one.total;
    sum.moved += one.moved;
    sum.least += one.least;
  }
  return sum;
}
template <compile_time_layout From, compile_time_layout To, dtype Type, owner_id... Ranks>
constexpr static_totals totals_of(std::integer_sequence<owner_id, Ranks...>) {
  return sum_of({totals_of_rank<From, To, Type, Ranks>...});
}

}  // namespace shardmesh::detail

export namespace shardmesh {

/// The transfer of a tensor from one static layout to another, at compile time. Its steps are those of the run-time
/// plan, including terms of Partial layouts (see `transfer_plan` for the rules).
///     using rows = static_layout<static_extents{4}, static_extents{8, 8}, placement::shard(0)>;
///     using columns = static_layout<static_extents{4}, static_extents{8, 8}, placement::shard(1)>;
///     static_assert(static_transfer<rows, columns>::is_minimal);
/// A transfer that `plan` rejects does not compile. The ranks of both layouts are those of one communicator.
/// Cost: each rank is a constant evaluation of O(fragments of both layouts + copies of the rank) steps. The default
/// limit of 2^20 steps (-fconstexpr-steps) allows 64 ranks that exchange shards, or 16 that gather all of them.
template <compile_time_layout From, compile_time_layout To, dtype Type = dtype::float32>
class static_transfer {
  static_assert(From::shape() == To::shape(), "source and destination are different tensors: give both one shape");
  static_assert(Type != dtype::undefined, "the dtype of a transfer is not undefined");
  static_assert(has_countable_bytes(From::shape(), Type, Type), "the bytes of the tensor do not fit in 64 bits");
  static_assert(From::reduction() == reduce_op::none || bits(Type) % 8 == 0,
                "terms of a type of less than a byte are not combined");

  static_assert(detail::is_layout_byte_aligned<From, Type>() && detail::is_layout_byte_aligned<To, Type>(),
                "elements of less than a byte are cut inside a byte");

 public:
  /// Number of ranks that take part: that of the larger layout.
  static constexpr owner_id ranks = static_cast<owner_id>(std::max(From::size(), To::size()));

  /// One rank's steps, a std::array of `step`: those of the run-time plan's `for_owner(Rank)`, in the same order.
  template <owner_id Rank>
    requires(Rank >= 0 && Rank < ranks)
  static constexpr auto steps = detail::part_of_rank<From, To, Type, Rank>.steps;
  /// The boxes that a rank sends, by peer, then in wire order: a std::array of `moved_box`. Terms of a Partial go to
  /// the rank that combines them, and that rank sends the results to the others.
  template <owner_id Rank>
    requires(Rank >= 0 && Rank < ranks)
  static constexpr auto sends = detail::part_of_rank<From, To, Type, Rank>.sends;
  /// The boxes that a rank receives, by peer, then in wire order.
  template <owner_id Rank>
    requires(Rank >= 0 && Rank < ranks)
  static constexpr auto receives = detail::part_of_rank<From, To, Type, Rank>.receives;
  /// The boxes that a rank copies from its old part of the tensor to its new one, in step order: a std::array of `box`.
  template <owner_id Rank>
    requires(Rank >= 0 && Rank < ranks)
  static constexpr auto kept = detail::part_of_rank<From, To, Type, Rank>.kept;

  /// Bytes that travel from one rank to another.
  template <owner_id Sender, owner_id Receiver>
    requires(Sender >= 0 && Sender < ranks && Receiver >= 0 && Receiver < ranks)
  static constexpr std::int64_t bytes = detail::bytes_to(detail::part_of_rank<From, To, Type, Sender>, Receiver);

 private:
  static constexpr detail::static_totals totals_ =
      detail::totals_of<From, To, Type>(std::make_integer_sequence<owner_id, ranks>());

 public:
  /// Bytes of all copies, including those within one rank.
  static constexpr std::int64_t bytes_total = totals_.total;
  /// Bytes that travel between different ranks.
  static constexpr std::int64_t bytes_moved = totals_.moved;
  /// The fewest bytes that any plan moves (see `transfer_plan::lower_bound`).
  static constexpr std::int64_t lower_bound = totals_.least;
  /// True when no plan moves fewer bytes.
  static constexpr bool is_minimal = bytes_moved == lower_bound;

  /// Makes the run-time plan of both layouts, with default options. Cost: as `plan`.
  static transfer_plan plan() {
    return shardmesh::plan({{distribute(From::as_layout()).value(), distribute(To::as_layout()).value(), Type, Type}})
        .value();
  }
};

}  // namespace shardmesh
