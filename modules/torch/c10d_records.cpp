// SPDX-License-Identifier: Apache-2.0
// The records that other ranks send: announced messages meet the receives that match them.
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

// An exception must not leave a thread: it would end the program.
void engine::heard(std::int32_t peer, const record& head) {
  try {
    if (head.kind == record_kind::goodbye)
      see_off(peer);
    else if (head.version != record().version)
      poison(fail(errc::disagreement, "ranks run different versions of shardmesh.torch").with_rank(peer), true);
    else
      handle(peer, head);
  } catch (const std::exception& problem) {
    poison(channel_problem(problem, "receives from", peer, named(head)), true);
  }
}

// Ranks that wait for a rank that has left get an error, because they would wait forever. If that rank left because of
// an error, they get that error instead.
void engine::see_off(std::int32_t peer) {
  if (std::find(gone_.begin(), gone_.end(), peer) == gone_.end()) gone_.push_back(peer);
  bool is_missed = false;
  for (const auto& [key, at] : lines_) is_missed = is_missed || (std::get<0>(key) == peer && !at.receives.empty());
  for (const auto& [key, sent] : sent_) is_missed = is_missed || (key.first == peer && sent.owner);
  if (is_missed && !error_is_coming_) poison(let_go(peer), true);
}

void engine::handle(std::int32_t peer, const record& head) {
  if (head.kind == record_kind::taken) {
    const auto found = sent_.find({peer, head.number});
    if (found == sent_.end()) return;
    if (const auto& owner = found->second.owner) std::erase(owner->takers, peer);
    to_finish_.push_back({std::move(found->second.moving), peer, found->second.name});
    sent_.erase(found);
    changed_.notify_all();
    return;
  }
  if (head.kind == record_kind::poison) {
    error_is_coming_ = true;
    match(peer, head, {});
    return;
  }
  if (poison_) return;  // no call wants it: a payload stays with its sender
  const bool is_gather = head.kind == record_kind::gather;
  last_words& last = heard_[static_cast<std::size_t>(peer)];
  last = {std::chrono::steady_clock::now(), head.call, is_gather};
  last.call.back() = '\0';
  const auto at = lines_.try_emplace({peer, head.tag, is_gather}).first;
  std::deque<expected>& receives = at->second.receives;
  if (receives.empty()) {
    at->second.announced.push_back(head);
    return;
  }
  expected receive = std::move(receives.front());
  receives.pop_front();
  if (receives.empty()) lines_.erase(at);
  match(peer, head, std::move(receive));
}

// Joins an announced message and the receive that matches it.
void engine::match(std::int32_t peer, const record& head, expected receive) {
  if (head.kind == record_kind::message && receive.owner && receive.room.size() != head.size_bytes) {
    poison(
        fail(errc::communication, "the message of rank " + std::to_string(peer) + " does not have the size that rank " +
                                      std::to_string(rank()) + " expects (tag " + std::to_string(head.tag) + ")")
            .with_rank(peer)
            .with_values(std::to_string(receive.room.size()) + " bytes", std::to_string(head.size_bytes) + " bytes"),
        true);
    receive = {};
  }
  if (head.size_bytes <= head.inside.size()) {
    take(peer, head, receive, std::span(head.inside).first(static_cast<std::size_t>(head.size_bytes)));
    return;
  }
  try {
    auto moving = group_->receive(static_cast<std::size_t>(head.size_bytes), peer, payload_tag(head.number));
    coming_.push_back({std::move(moving), peer, head, std::move(receive)});
    changed_.notify_all();
  } catch (const std::exception& problem) {
    poison(channel_problem(problem, "receives from", peer, named(head)), true);
  }
}

// After an error nothing is written: the waiting call has returned, and its memory may be gone.
void engine::take(std::int32_t peer, const record& head, expected& receive, std::span<const std::byte> bytes) {
  if (head.kind == record_kind::poison) {
    auto reason = error_from_bytes(bytes);
    poison(reason ? *std::move(reason)
                  : fail(errc::communication, "a rank sent an error that cannot be read").with_rank(peer),
           false);
    return;
  }
  if (poison_ || !receive.owner) return;
  if (receive.grows != nullptr)
    receive.grows->assign(bytes.begin(), bytes.end());
  else
    std::copy(bytes.begin(), bytes.end(), receive.room.begin());
  auto& senders = receive.owner->senders;
  senders.erase(std::find(senders.begin(), senders.end(), peer));
  changed_.notify_all();
}

}  // namespace shardmesh::c10d_detail
