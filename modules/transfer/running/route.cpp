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

import :expand;
import :route;

namespace shardmesh {
namespace {

transfer_types types_of(const tensor_transfer& t) {
  return {t.from_type, t.to_type, bits(t.to_type) < bits(t.from_type) ? t.to_type : t.from_type,
          accumulation_type(t.from_type)};
}

// Makes the batch of one round. `tally` first counts the pieces of each peer's message, so that pieces are laid out
// once.
class batch_maker {
 public:
  batch_maker(route& r, const schedule& rounds, std::int64_t round) : route_(r), rounds_(rounds), round_(round) {}

  batch_route make(std::size_t first, std::size_t last) {
    for (std::size_t t = first; t < last; ++t) {
      cut(t);
      tally(t);
    }
    lay_out(made_.gather);
    lay_out(made_.deliver);
    for (std::size_t t = first; t < last; ++t) add(t);
    return std::move(made_);
  }

 private:
  // The pieces of a transfer's steps that move in this round, in step order. The pieces of step i are pieces[begins[i]]
  // .. pieces[begins[i + 1] - 1].
  struct pieces_of_transfer {
    std::vector<std::uint32_t> begins;
    std::vector<task> pieces;
    std::span<task> of(std::uint32_t step) {
      return std::span(pieces).subspan(begins[step], begins[step + 1] - begins[step]);
    }
  };

  void cut(std::size_t t) {
    pieces_of_transfer& here = cut_.emplace_back();
    const step_table& steps = route_.steps.steps(t);
    const round_range range = rounds_.rounds_of(t);
    const bool whole = range.last - range.first == 1;
    here.begins.reserve(steps.size() + 1);
    for (std::uint32_t i = 0; i < steps.size(); ++i) {
      here.begins.push_back(static_cast<std::uint32_t>(here.pieces.size()));
      task work{static_cast<std::uint32_t>(t), i};
      if (whole) {
        here.pieces.push_back(work);
        continue;
      }
      const step s = steps[i];
      const bool takes_memory =
          s.from.owner != s.to.owner || s.from.side == buffer_side::staging || s.to.side == buffer_side::staging;
      if (!takes_memory) {  // moves in the first round, or after everything has arrived
        if (round_ == (s.phase <= step_phase::deliver ? range.first : range.last - 1)) here.pieces.push_back(work);
        continue;
      }
      rounds_.parts(t, s.where, round_, [&](const box& part) {
        work.cut = no_cut;
        if (part != s.where) {
          work.cut = static_cast<std::uint32_t>(route_.cuts.size());
          for (const extents* numbers : {&part.offsets, &part.sizes})
            route_.cuts.insert(route_.cuts.end(), numbers->begin(), numbers->end());
        }
        here.pieces.push_back(work);
      });
    }
    here.begins.push_back(static_cast<std::uint32_t>(here.pieces.size()));
    first_transfer_ = std::min(first_transfer_, t);
  }

  pieces_of_transfer& pieces(std::size_t t) { return cut_[t - first_transfer_]; }

  message_round* round_of(step_phase phase) { return phase == step_phase::gather ? &made_.gather : &made_.deliver; }

  static message& message_to(std::vector<message>& list, std::int32_t peer) {
    auto at =
        std::lower_bound(list.begin(), list.end(), peer, [](const message& m, std::int32_t p) { return m.peer < p; });
    if (at == list.end() || at->peer != peer) at = list.insert(at, message{peer, 0, 0, 0});
    return *at;
  }

  void tally(std::size_t t) {
    route_.steps.part(t).for_each_piece([&](owner_id peer, std::uint32_t index, bool sends) {
      const auto count = static_cast<std::uint32_t>(pieces(t).of(index).size());
      if (count == 0) return;
      message_round& round = *round_of(route_.steps.steps(t).head_of(index).phase);
      message_to(sends ? round.sends : round.receives, peer).pieces += count;
    });
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

  // Appends a piece to the message of a peer.
  static void append(task& piece, std::vector<message>& list, std::int32_t peer, std::int64_t size_bytes) {
    message& m = message_to(list, peer);
    piece.message = static_cast<std::uint32_t>(&m - list.data());
    piece.piece = m.pieces++;
    piece.offset = m.size_bytes;
    m.size_bytes += size_bytes;
  }

  // Gives each travelling piece its place in a message, and stores the outgoing pieces there. Sender and receiver go
  // through the same steps in the same order, because their tables are sorted by the same rule. Messages therefore
  // carry no offsets.
  void append_pieces(std::size_t t) {
    route_.steps.part(t).for_each_piece([&](owner_id peer, std::uint32_t index, bool sends) {
      for (task& piece : pieces(t).of(index)) {
        const step s = route_.step_of(piece);
        message_round& round = *round_of(s.phase);
        append(piece, sends ? round.sends : round.receives, peer, bytes_of(s.where, route_.types[t].in_message(s)));
        if (!sends) continue;
        if (s.from.side == buffer_side::staging) piece.staging = region_of(s.where);
        round.outgoing[round.sends[piece.message].first + piece.piece] = piece;
      }
    });
  }

  // The region of a box in the current transfer.
  std::uint32_t region_of(const box& where) const {
    const auto found = regions_.find(where);
    return found == regions_.end() ? no_staging : found->second;
  }

  void make_regions(std::size_t t) {
    regions_.clear();
    for (const task& work : pieces(t).pieces) {
      const step s = route_.step_of(work);
      if (s.phase != step_phase::gather) break;  // phases ascend
      if (s.to.side != buffer_side::staging || s.to.owner != route_.steps.owner()) continue;
      if (!regions_.try_emplace(s.where, static_cast<std::uint32_t>(made_.regions.size())).second) continue;
      made_.regions.push_back({static_cast<std::uint32_t>(t), s.where.volume(), made_.staging_bytes});
      made_.staging_bytes += staging_size(s.where.volume(), bits(route_.types[t].sum));
    }
  }

  void add(std::size_t t) {
    make_regions(t);
    append_pieces(t);
    for (task& work : pieces(t).pieces) {
      const step s = route_.step_of(work);
      if (s.to.owner != route_.steps.owner()) continue;  // it is sent
      const bool arrives = work.message != no_message;
      if (s.from.side == buffer_side::staging || s.to.side == buffer_side::staging) work.staging = region_of(s.where);
      switch (s.phase) {
        case step_phase::gather:
        case step_phase::deliver: {
          message_round& round = *round_of(s.phase);
          if (arrives) round.receives[work.message].first = round.late.size();
          (arrives || s.to.side == buffer_side::staging ? round.late : round.early).push_back(work);
          break;
        }
        case step_phase::average:
          made_.middle.push_back(work);
          break;
        case step_phase::repeat:
        case step_phase::finish:
          made_.finish.push_back(work);
      }
    }
  }

  route& route_;
  const schedule& rounds_;
  std::int64_t round_;
  std::size_t first_transfer_ = SIZE_MAX;
  std::vector<pieces_of_transfer> cut_;
  batch_route made_;
  std::map<box, std::uint32_t> regions_;
};

bool is_empty(const batch_route& batch) {
  const auto idle = [](const message_round& r) {
    return r.sends.empty() && r.receives.empty() && r.early.empty() && r.late.empty();
  };
  return idle(batch.gather) && idle(batch.deliver) && batch.middle.empty() && batch.finish.empty();
}

std::int64_t memory_of(const batch_route& batch, bool messages) {
  const auto packed = [&](const message_round& r) {
    std::int64_t sum = 0;
    for (const auto* list : {&r.sends, &r.receives})
      for (const message& m : *list) sum += messages ? m.size_bytes : 0;
    return sum;
  };
  return batch.staging_bytes + std::max(packed(batch.gather), packed(batch.deliver));
}

}  // namespace

std::int64_t bytes_of(const box& where, dtype type) {
  return where.volume() * bits(type) / 8;
}

step route::step_of(const task& work) const {
  step s = steps.steps(work.transfer)[work.step];
  if (work.cut == no_cut) return s;
  const std::size_t rank = s.where.rank();
  const std::span<const std::int64_t> numbers = std::span(cuts).subspan(work.cut, 2 * rank);
  for (std::size_t d = 0; d < rank; ++d) {
    const std::int64_t moved = numbers[d] - s.where.offsets[d];
    // A part has a staging buffer of its own.
    if (s.from.side != buffer_side::staging) s.from.offsets[d] += moved;
    if (s.to.side != buffer_side::staging) s.to.offsets[d] += moved;
    s.where.offsets[d] = numbers[d];
    s.where.sizes[d] = numbers[rank + d];
  }
  return s;
}

message_counts most_messages(const route& r) {
  message_counts most;
  for (const batch_route& batch : r.batches)
    for (const message_round* round : {&batch.gather, &batch.deliver}) {
      most.sends = std::max(most.sends, round->sends.size());
      most.receives = std::max(most.receives, round->receives.size());
    }
  return most;
}

route make_route(const transfer_plan& plan, rank_plan steps, const schedule& rounds, bool messages) {
  route made;
  made.steps = std::move(steps);
  const std::size_t count = plan.transfers().size();
  for (const tensor_transfer& t : plan.transfers()) made.types.push_back(types_of(t));
  std::size_t first = 0;
  for (std::int64_t round = 0; round < rounds.rounds(); ++round) {
    while (first < count && rounds.rounds_of(first).last <= round) ++first;
    std::size_t last = first;
    while (last < count && rounds.rounds_of(last).first <= round) ++last;
    if (first == last) continue;
    batch_route batch = batch_maker(made, rounds, round).make(first, last);
    if (is_empty(batch)) continue;
    made.peak_bytes = std::max(made.peak_bytes, memory_of(batch, messages));
    made.batches.push_back(std::move(batch));
  }
  return made;
}

}  // namespace shardmesh
