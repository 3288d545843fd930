// SPDX-License-Identifier: Apache-2.0
// Moves parts of tensors from the ranks that read them to the others.
module;
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.collective_checkpoint;

import :chunk_forms;
import :load_exchange;
import :load_planner;
import :rank_load;
import :rank_requests;
import :rank_share;
import :rank_state;
import :round_share;
import :staged_round;

namespace shardmesh {
namespace {

// The least memory for the messages of an exchange.
constexpr std::int64_t least_message_bytes = std::int64_t{32} << 20;

}  // namespace

// Moves data from the readers' memory to that of the other holders.
result<void> rank_load::exchange() {
  auto moves = exchange_of(share_, requests_, reader_->contents(), comm_.rank());
  // The other ranks get this rank's error from the executor.
  auto planned = moves ? plan(std::move(moves->transfers)) : result<transfer_plan>(moves.error());
  SHARDMESH_TRY(executor runs,
                executor::make(std::move(planned), comm_, moves ? moves->keys : std::vector<std::string>{},
                               {.progress = loading_.progress, .whole_plan = false}, round_.call));
  SHARDMESH_TRY(runs.run(moves->from, moves->to, round_.call));
  report_.bytes_received += moves->received_bytes;
  // A rank that has all its bytes does not know whether the others have theirs.
  SHARDMESH_TRY(round_.settle({}));
  for (const std::string& key : exchanged_) loading_.on_arrival(key);
  return {};
}

// Reads pieces for other ranks, in rounds that fit the staging memory.
result<void> rank_load::read_in_pieces() {
  SHARDMESH_TRY(const std::vector<round_share> rounds, get_rounds());
  staged_rounds staged({.reader = *reader_,
                        .ranks = round_,
                        .options = loading_,
                        .check = share_.check,
                        .message_bytes = std::max(options_.memory_bytes / 2, least_message_bytes),
                        .memory_of = [this](std::size_t stored, const wanted_part& part) {
                          const load_request& whole = *requests_.part_of(stored, part.part);
                          return subview(whole.to, relative_to(part.where, whole.where));
                        }});
  for (const round_share& round : rounds) {
    SHARDMESH_TRY(const round_bytes moved, staged.run(round));
    report_.bytes_read += moved.read;
    report_.bytes_received += moved.received;
    for (const round_tensor_share& done : round)
      if (done.is_last && loading_.on_arrival && requests_.wants(done.stored))
        loading_.on_arrival(reader_->contents().tensors[done.stored].key);
  }
  // A rank that has all its bytes does not know whether the others have theirs.
  SHARDMESH_TRY(round_.settle({}));
  return {};
}

// Returns this rank's part of the rounds, which rank 0 plans when it knows the forms of all chunks.
result<std::vector<round_share>> rank_load::get_rounds() {
  agreement_notes forms;
  if (share_.opens_chunks) {
    std::vector<std::byte> note;
    const auto mine = guarded([&]() -> result<void> {
      SHARDMESH_TRY(note, look_at_chunks(*reader_, share_.chunks));
      return {};
    });
    SHARDMESH_TRY(forms, round_.collect(mine, std::move(note)));
  }
  SHARDMESH_TRY(const std::vector<std::byte> told,
                round_.hand_out(by_planner([&] { return planner_->round_shares(forms); })));
  planner_.reset();
  detail::wire_reader in(told);
  SHARDMESH_TRY(read_verdict(in));
  std::vector<round_share> rounds;
  const auto taken = guarded([&]() -> result<void> {
    auto share = read_round_shares(in.rest(), reader_->contents(), comm_.rank(), comm_.size());
    if (!share || !std::all_of(share->begin(), share->end(), [&](const auto& round) { return requests_.fits(round); }))
      return malformed_share();
    rounds = *std::move(share);
    return {};
  });
  // The other ranks get this error in the round that follows their reads.
  if (!taken) SHARDMESH_TRY(round_.settle(taken));
  return rounds;
}

}  // namespace shardmesh
