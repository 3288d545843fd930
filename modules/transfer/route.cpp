// SPDX-License-Identifier: Apache-2.0
module;
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>
module shardmesh.transfer;

import :route;

namespace shardmesh {
namespace {

constexpr std::int64_t region_alignment = 64;

transfer_types types_of(const tensor_transfer& t) {
  return {t.from_type, t.to_type, bits(t.to_type) < bits(t.from_type) ? t.to_type : t.from_type,
          accumulation_type(t.from_type)};
}

// Distributes the steps of one batch. Messages are listed per peer by `tally` first, so that pieces are laid out once.
class batch_maker {
 public:
  batch_maker(const route& r, std::size_t first, std::size_t last) : route_(r), first_(first), last_(last) {}

  batch_route make() {
    for (std::size_t t = first_; t < last_; ++t) {
      tally(t, route_.steps.part(t).sends, true);
      tally(t, route_.steps.part(t).receives, false);
    }
    lay_out(made_.gather);
    lay_out(made_.deliver);
    for (std::size_t t = first_; t < last_; ++t) add(t);
    return std::move(made_);
  }

 private:
  message_round* round_of(const step& s) { return s.phase == 0 ? &made_.gather : &made_.deliver; }

  static message& message_to(std::vector<message>& list, std::int32_t peer) {
    auto at =
        std::lower_bound(list.begin(), list.end(), peer, [](const message& m, std::int32_t p) { return m.peer < p; });
    if (at == list.end() || at->peer != peer) at = list.insert(at, message{peer, 0, 0, 0});
    return *at;
  }

  void tally(std::size_t t, std::span<const std::pair<owner_id, std::uint32_t>> pieces, bool sends) {
    for (const auto& [peer, index] : pieces) {
      message_round& round = *round_of(route_.steps.steps(t)[index]);
      ++message_to(sends ? round.sends : round.receives, peer).pieces;
    }
  }

  static void lay_out(message_round& round) {
    std::size_t next = 0;
    for (message& m : round.sends) {
      m.first = next;
      next += m.pieces;
      m.pieces = 0;  // counted again as pieces are added
    }
    round.outgoing.resize(next);
    for (message& m : round.receives) m.pieces = 0;
  }

  // The next piece of a message.
  static void append(task& piece, std::vector<message>& list, std::int32_t peer, std::int64_t size_bytes) {
    message& m = message_to(list, peer);
    piece.message = static_cast<std::uint32_t>(&m - list.data());
    piece.piece = m.pieces++;
    piece.offset = m.size_bytes;
    m.size_bytes += size_bytes;
  }

  // The pieces of a transfer: outgoing ones at once; received ones in the order of steps, for `add`.
  void append_pieces(std::size_t t, std::vector<task>& arriving) {
    const owner_steps& part = route_.steps.part(t);
    const auto piece_of = [&](std::uint32_t index, bool sends, owner_id peer) {
      const step s = part.steps[index];
      task piece{static_cast<std::uint32_t>(t), index};
      message_round& round = *round_of(s);
      append(piece, sends ? round.sends : round.receives, peer, bytes_of(s.where, route_.types[t].in_message(s)));
      return piece;
    };
    for (const auto& [peer, index] : part.sends) {
      task piece = piece_of(index, true, peer);
      const step s = part.steps[index];
      if (s.from.side == buffer_side::staging) piece.staging = region_of(s.where);
      message_round& round = *round_of(s);
      round.outgoing[round.sends[piece.message].first + piece.piece] = piece;
    }
    for (const auto& [peer, index] : part.receives) arriving.push_back(piece_of(index, false, peer));
    std::sort(arriving.begin(), arriving.end(), [](const task& a, const task& b) { return a.step < b.step; });
  }

  // Regions of the transfer at hand, by box.
  std::uint32_t region_of(const box& where) const {
    const auto found = regions_.find(where);
    return found == regions_.end() ? no_staging : found->second;
  }

  void make_regions(std::size_t t) {
    regions_.clear();
    const step_table& steps = route_.steps.steps(t);
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const step s = steps[i];
      if (s.phase != 0) break;  // phases ascend
      if (s.to.side != buffer_side::staging || s.to.owner != route_.steps.owner()) continue;
      if (!regions_.try_emplace(s.where, static_cast<std::uint32_t>(made_.regions.size())).second) continue;
      made_.regions.push_back({static_cast<std::uint32_t>(t), s.where.volume(), made_.staging_bytes});
      const std::int64_t size = bytes_of(s.where, route_.types[t].sum);
      made_.staging_bytes += (size + region_alignment - 1) / region_alignment * region_alignment;
    }
  }

  void add(std::size_t t) {
    make_regions(t);
    std::vector<task> arriving;  // by step
    append_pieces(t, arriving);
    const step_table& steps = route_.steps.steps(t);
    auto next = arriving.begin();
    for (std::uint32_t i = 0; i < steps.size(); ++i) {
      const step s = steps[i];
      task work{static_cast<std::uint32_t>(t), i};
      const bool arrives = next != arriving.end() && next->step == i;
      if (arrives) work = *next++;
      if (s.to.owner != route_.steps.owner()) continue;  // sent
      if (s.from.side == buffer_side::staging || s.to.side == buffer_side::staging) work.staging = region_of(s.where);
      switch (s.phase) {
        case 0:
        case 2: {
          message_round& round = *round_of(s);
          if (arrives) round.receives[work.message].first = round.late.size();
          (arrives || s.to.side == buffer_side::staging ? round.late : round.early).push_back(work);
          break;
        }
        case 1:
          made_.middle.push_back(work);
          break;
        default:
          made_.finish.push_back(work);
      }
    }
  }

  const route& route_;
  std::size_t first_, last_;
  batch_route made_;
  std::map<box, std::uint32_t> regions_;
};

}  // namespace

dtype accumulation_type(dtype type) {
  if (kind(type) == dtype_kind::floating && bits(type) < 32) return dtype::float32;
  if (type == dtype::complex32) return dtype::complex64;
  return type;
}

std::int64_t bytes_of(const box& where, dtype type) {
  return where.volume() * bits(type) / 8;
}

route make_route(const transfer_plan& plan, owner_id rank) {
  route made;
  made.steps = plan.for_owner(rank);
  for (const tensor_transfer& t : plan.transfers()) made.types.push_back(types_of(t));
  for (const auto& [first, last] : plan.batches()) made.batches.push_back(batch_maker(made, first, last).make());
  return made;
}

}  // namespace shardmesh
