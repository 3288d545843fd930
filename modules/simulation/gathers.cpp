// SPDX-License-Identifier: Apache-2.0
// All_gathers of simulated ranks: the bytes, the counts, and the modelled times.
module;
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <span>
#include <vector>
module shardmesh.simulation;

import :engine;

namespace shardmesh {
namespace {

using gathered = std::vector<std::vector<std::byte>>;

constexpr const char* gather_part = "an all_gather";

std::vector<std::int32_t> missing_ranks(const gather_round& round) {
  std::vector<std::int32_t> ranks;
  for (std::size_t rank = 0; rank < round.came.size(); ++rank)
    if (!round.came[rank]) ranks.push_back(static_cast<std::int32_t>(rank));
  return ranks;
}

}  // namespace

result<gathered> simulation_state::all_gather(std::int32_t rank, std::span<const std::byte> bytes,
                                              const call_options& options) {
  const detail::call_identity call{rank, gather_part, options.name, options.tag};
  SHARDMESH_TRY(const detail::call_limits limits, begin_call(call, options));
  const own_work_pause paused(*this, rank);
  simulated_rank& mine = of(rank);
  if (!gather_) {
    gather_ = std::make_shared<gather_round>();
    gather_->parts.resize(ranks_.size());
    gather_->came.resize(ranks_.size());
    gather_->missing = size();
  }
  const std::shared_ptr<gather_round> round = gather_;
  const auto place = static_cast<std::size_t>(rank);
  round->parts[place].assign(bytes.begin(), bytes.end());
  round->came[place] = true;
  round->size_bytes += std::ssize(bytes);
  round->latest = std::max(round->latest, mine.now);
  if (--round->missing == 0) {
    gather_ = nullptr;  // the next call begins a new one
    for (std::int32_t other = 0; other < size(); ++other)
      if (of(other).status == rank_status::waiting && of(other).exchange == nullptr) make_ready(other);
  }
  while (round->missing != 0) {
    if (poison_) return *poison_;
    if (const errc ended = limits.reached(); ended != errc::ok)
      set_poison(detail::ended_wait(call, limits, ended, missing_ranks(*round)), rank);
    else
      wait_turn(call, limits, nullptr);
  }
  const std::int64_t of_others = round->size_bytes - std::ssize(bytes);
  mine.now = later(round->latest, options_.network.all_gather_time(size(), of_others));
  ++mine.traffic.all_gathers;
  mine.traffic.gathered_bytes += of_others;
  mine.traffic.largest_gather = std::max(mine.traffic.largest_gather, std::ssize(bytes));
  note({simulation_event::what::gathered, rank, rank, options.tag, std::ssize(bytes), mine.now});
  return round->parts;
}

}  // namespace shardmesh
