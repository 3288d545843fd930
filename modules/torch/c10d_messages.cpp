// SPDX-License-Identifier: Apache-2.0
// The messages of an engine: expected ones, and announced ones.
module;
#include <process_token.hpp>
#include <torch/c10d_channel.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>
module shardmesh.torch;

import shardmesh.comm;
import :c10d_engine;

namespace shardmesh::c10d_detail {

void engine::expect(std::int32_t peer, bool is_gather, expected receive) {
  if (poison_) return;
  receive.owner->senders.push_back(peer);
  const auto at = lines_.try_emplace({peer, is_gather ? 0 : receive.owner->tag, is_gather}).first;
  std::deque<record>& announced = at->second.announced;
  if (announced.empty()) {
    const bool is_gone = std::find(gone_.begin(), gone_.end(), peer) != gone_.end();
    if (is_gone && !error_is_coming_) return poison(let_go(peer), true);
    at->second.receives.push_back(std::move(receive));
    return;
  }
  const record head = announced.front();
  announced.pop_front();
  if (announced.empty()) lines_.erase(at);
  match(peer, head, std::move(receive));
}

// Returns the number of a payload, which decides its tag. No other payload that the peer has not yet taken has this
// number.
std::uint32_t engine::free_number(std::int32_t peer) {
  std::uint32_t& next = payloads_[static_cast<std::size_t>(peer)];
  constexpr std::uint32_t count = record_slot;
  for (std::uint32_t tried = 0; tried < count; ++tried) {
    const std::uint32_t number = next;
    next = (next + 1) % count;
    if (!sent_.contains({peer, number})) return number;
  }
  throw std::length_error("more than 2^20 messages to one rank are not received yet");
}

// Copies the bytes, so that the user's memory may be freed as soon as an error is known.
void engine::announce(std::int32_t peer, record_kind kind, std::span<const std::byte> bytes,
                      const std::shared_ptr<exchange>& owner) {
  if (poison_ && kind != record_kind::poison) return;
  record head;
  head.kind = kind;
  head.tag = kind == record_kind::message ? owner->tag : 0;  // all_gathers match in call order alone
  const std::string_view call = owner ? owner->call : "";
  std::copy_n(call.begin(), std::min(call.size(), head.call.size() - 1), head.call.begin());
  head.size_bytes = bytes.size();
  try {
    if (bytes.size() <= head.inside.size()) {
      std::copy(bytes.begin(), bytes.end(), head.inside.begin());
      send_record(peer, head);
      return;
    }
    // The payload is sent before it is announced: a receiver would wait forever for one that cannot be sent.
    head.number = free_number(peer);
    const auto at = sent_.try_emplace({peer, head.number}, payload_sent{owner, named(head), {}}).first;
    at->second.moving = group_->send(bytes, peer, payload_tag(head.number));
    if (owner) owner->takers.push_back(peer);
    send_record(peer, head);
    if (owner) return;
    to_finish_.push_back({std::move(at->second.moving), peer, named(head)});  // an error has no owner
    sent_.erase(at);
  } catch (const std::exception& problem) {
    poison(channel_problem(problem, "sends to", peer, named(head)), true);
  }
}

}  // namespace shardmesh::c10d_detail
