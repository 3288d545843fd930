// SPDX-License-Identifier: Apache-2.0
// The traffic, the bytes, and the memory budget of one owner's part. Its peak is in `schedule`.
module;
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>
module shardmesh.transfer;

import :schedule;

namespace shardmesh {
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
