// SPDX-License-Identifier: Apache-2.0
module;
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>
module shardmesh.collective_checkpoint;

import shardmesh.checkpoint_core;
import :box_sets;
import :reading_rounds;

namespace shardmesh {
namespace {

// A piece without a reader so far.
struct open_piece {
  std::int32_t chunk = 0;
  box where;
  std::int64_t bytes = 0;  // as stored
  bool has_one_reader = false;
};

class round_planner {
 public:
  round_planner(const merged_state& all, const catalog& contents, const load_assignment& reads,
                const std::unordered_map<std::int32_t, chunk_form>& forms, const round_limits& limits)
      : all_(all), contents_(contents), reads_(reads), forms_(forms), limits_(limits) {
    begin_round();
  }

  std::vector<reading_round> run() && {
    for (const std::size_t tensor : reads_.in_pieces) add(tensor);
    begin_round();
    return std::move(rounds_);
  }

 private:
  struct run_of_file {
    std::int32_t reader = 0;
    std::int64_t bytes = 0;
  };

  void begin_round() {
    if (!round_.empty()) rounds_.push_back(std::move(round_));
    round_.clear();
    load_.assign(static_cast<std::size_t>(limits_.ranks), 0);
    runs_.clear();
  }

  void add(std::size_t tensor) {
    std::vector<open_piece> open = pieces_of(tensor);
    if (open.empty()) return;
    const std::vector<std::int32_t> readers = readers_of(all_.tensors[tensor]);
    // Places the whole tensor in one round if possible: in the current round, or in a new one.
    for (bool is_fresh = round_.empty();; is_fresh = true) {
      round_tensor whole{tensor, true, {}};
      if (deal(open, readers, whole.pieces).empty()) return round_.push_back(std::move(whole));
      begin_round();
      if (is_fresh) break;
    }
    while (!open.empty()) {
      round_tensor part{tensor, false, {}};
      open = deal(open, readers, part.pieces);
      part.is_last = open.empty();
      round_.push_back(std::move(part));
      begin_round();
    }
  }

  // The pieces to read of the tensor, chunk by chunk in storage order.
  std::vector<open_piece> pieces_of(std::size_t tensor) const {
    const merged_tensor& wanted = all_.tensors[tensor];
    const tensor_entry& stored = *contents_.find(wanted.key);
    const std::int64_t item = item_bytes(stored.type);
    std::vector<box> boxes;
    std::int64_t volume = 0;
    for (const replica_range& range : replicas_of(wanted)) {
      boxes.push_back(wanted.boxes[range.first].where);
      volume = checked_add(volume, boxes.back().volume()).value_or(INT64_MAX);
    }
    const bool all_is_wanted = volume == box::whole(wanted.shape).volume() && are_apart(wanted.shape.rank(), boxes);
    std::vector<std::int32_t> chunks = chunks_of(contents_, stored);
    const auto place = [&](std::int32_t chunk) {
      const stored_range& at = contents_.chunk_places[static_cast<std::size_t>(chunk)];
      return std::tuple(at.file, at.offset, chunk);
    };
    std::sort(chunks.begin(), chunks.end(), [&](auto a, auto b) { return place(a) < place(b); });
    std::vector<open_piece> made;
    for (const std::int32_t chunk : chunks) {
      const box where = contents_.chunk_box(stored, chunk);
      const chunk_form form = form_of(chunk);
      std::vector<box> read{where};
      if (!all_is_wanted) read = readable_boxes(where, parts_within(where, boxes), item);
      for (const box& part : read)
        for (box& piece : cut_in_order(part, form.order, std::max<std::int64_t>(1, reads_.piece_bytes / item))) {
          const std::int64_t bytes = piece.volume() * item;
          made.push_back({chunk, std::move(piece), bytes, form.in_order || limits_.one_reader_for_a_chunk});
        }
    }
    return made;
  }

  static std::vector<box> parts_within(const box& chunk, std::span<const box> boxes) {
    std::vector<box> parts;
    for (const box& wanted : boxes)
      if (auto part = intersect(chunk, wanted)) parts.push_back(*std::move(part));
    return parts;
  }

  chunk_form form_of(std::int32_t chunk) const {
    chunk_form form;
    if (const auto found = forms_.find(chunk); found != forms_.end()) form = found->second;
    form.in_order |= contents_.chunk_places[static_cast<std::size_t>(chunk)].transform != 0;
    return form;
  }

  static std::vector<std::int32_t> readers_of(const merged_tensor& wanted) {
    std::vector<std::int32_t> ranks;
    for (const rank_box& one : wanted.boxes) ranks.push_back(one.rank);
    std::sort(ranks.begin(), ranks.end());
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    return ranks;
  }

  // Deals out pieces, and returns those that do not fit this round.
  std::vector<open_piece> deal(std::span<const open_piece> open, std::span<const std::int32_t> readers,
                               std::vector<read_piece>& dealt) {
    by_load_.clear();
    for (const std::int32_t rank : readers) by_load_.emplace_back(load_[static_cast<std::size_t>(rank)], rank);
    std::make_heap(by_load_.begin(), by_load_.end(), std::greater<>());
    std::vector<open_piece> left;
    std::unordered_set<std::int32_t> waiting;  // chunks whose later pieces have to wait
    for (const open_piece& piece : open) {
      std::optional<std::int32_t> reader;
      if (!piece.has_one_reader || !waiting.contains(piece.chunk)) reader = reader_of(piece, readers);
      if (!reader) {
        waiting.insert(piece.chunk);
        left.push_back(piece);
        continue;
      }
      load_[static_cast<std::size_t>(*reader)] += piece.bytes;
      dealt.push_back({piece.chunk, piece.where, *reader});
    }
    return left;
  }

  std::optional<std::int32_t> reader_of(const open_piece& piece, std::span<const std::int32_t> readers) {
    const auto has_room = [&](std::int32_t rank) {
      return load_[static_cast<std::size_t>(rank)] + piece.bytes <= limits_.staging_bytes;
    };
    if (piece.has_one_reader)
      if (const auto known = only_reader_.find(piece.chunk); known != only_reader_.end())
        return has_room(known->second) ? std::optional(known->second) : std::nullopt;
    run_of_file& run = runs_[contents_.chunk_places[static_cast<std::size_t>(piece.chunk)].file];
    const bool reads_on = run.bytes > 0 && run.bytes + piece.bytes <= reads_.piece_bytes && has_room(run.reader) &&
                          std::binary_search(readers.begin(), readers.end(), run.reader);
    if (!reads_on) {
      run = {least_loaded(), 0};
      if (!has_room(run.reader)) return std::nullopt;
    }
    run.bytes += piece.bytes;
    if (piece.has_one_reader) only_reader_.emplace(piece.chunk, run.reader);
    return run.reader;
  }

  // The reader of the tensor with the least to read in the round; ties go to the lowest rank. Loads only grow within a
  // round, so an old entry is at most too early in the heap.
  std::int32_t least_loaded() {
    for (;;) {
      const auto [bytes, rank] = by_load_.front();
      const std::int64_t now = load_[static_cast<std::size_t>(rank)];
      if (now == bytes) return rank;
      std::pop_heap(by_load_.begin(), by_load_.end(), std::greater<>());
      by_load_.back() = {now, rank};
      std::push_heap(by_load_.begin(), by_load_.end(), std::greater<>());
    }
  }

  const merged_state& all_;
  const catalog& contents_;
  const load_assignment& reads_;
  const std::unordered_map<std::int32_t, chunk_form>& forms_;
  const round_limits& limits_;
  std::vector<reading_round> rounds_;
  reading_round round_;
  std::vector<std::int64_t> load_;                              // per rank, bytes in the round
  std::vector<std::pair<std::int64_t, std::int32_t>> by_load_;  // a heap of the tensor's readers; loads may be old
  std::unordered_map<std::int32_t, run_of_file> runs_;          // per file: its current reader
  std::unordered_map<std::int32_t, std::int32_t> only_reader_;  // per chunk with one reader
};

}  // namespace

std::vector<reading_round> plan_rounds(const merged_state& all, const catalog& contents, const load_assignment& reads,
                                       const std::unordered_map<std::int32_t, chunk_form>& forms,
                                       const round_limits& limits) {
  return round_planner(all, contents, reads, forms, limits).run();
}

}  // namespace shardmesh
