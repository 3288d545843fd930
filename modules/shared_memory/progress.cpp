// SPDX-License-Identifier: Apache-2.0
// Progress of frames: from this rank's messages into the rings, and out of the rings into the receivers' buffers.
module;
#include <fmt/core.h>
#include <plural.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.shared_memory;

import shardmesh.comm;
import :engine;
import :segment;

namespace shardmesh::shared_memory {
namespace {

bool is_same(const frame& a, const frame& b) {
  return (a.kind == frame_kind::gather) == (b.kind == frame_kind::gather) && a.tag == b.tag;
}

void erase_one(std::vector<std::int32_t>& ranks, std::int32_t rank) {
  if (const auto at = std::find(ranks.begin(), ranks.end(), rank); at != ranks.end()) ranks.erase(at);
}

}  // namespace

// Moves frames in both directions. Returns whether anything moved.
bool engine::progress() {
  if (poison_) return false;
  auto told = memory_->poison();  // read first, so that everything sent before the poison is still received
  bool moved = false;
  for (std::int32_t peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    moved = pull(peer) || moved;
    moved = pull_answers(peer) || moved;
    moved = push(peer) || moved;
    if (poison_) return true;
  }
  if (told) {
    poison(*std::move(told));
    return true;
  }
  if (moved && waiting_ > 1) memory_->ring_bell(rank_);  // another waiting thread may own the message
  return moved;
}

bool engine::push(std::int32_t peer) {
  auto& sends = of(peer).sends;
  if (sends.empty()) return false;
  ring to = memory_->between(rank_, peer);
  bool moved = false;
  while (!sends.empty()) {
    leaving& next = sends.front();
    if (!next.is_headed) {
      if (to.writable() < sizeof(frame)) break;
      to.write(std::as_bytes(std::span(&next.head, 1)));
      next.is_headed = moved = true;
    }
    if (next.head.has_bytes()) {
      const std::uint64_t count = to.write(next.bytes);
      moved = moved || count > 0;
      next.bytes = next.bytes.subspan(static_cast<std::size_t>(count));
      if (!next.bytes.empty()) break;
      erase_one(next.owner->takers, peer);
    } else if (next.head.kind == frame_kind::lent) {
      of(peer).lents.push_back({next.head.number, next});
    }
    sends.pop_front();
  }
  if (moved) memory_->ring_bell(peer);
  // If room appeared meanwhile, this rank must not go to sleep: the peer would never wake it.
  if (!sends.empty() && !to.wait_for_room(sends.front().is_headed ? 1 : sizeof(frame))) memory_->ring_bell(rank_);
  return moved;
}

bool engine::pull(std::int32_t peer) {
  ring from = memory_->between(peer, rank_);
  bool moved = false;
  line& at = of(peer);
  while (!poison_) {
    if (!at.now) {
      if (from.readable() < sizeof(frame)) break;
      frame head;
      from.read(std::as_writable_bytes(std::span(&head, 1)));
      moved = true;
      begin_frame(peer, head);
      if (poison_) break;
      if (!at.now) continue;  // it has no bytes
    }
    const std::uint64_t count = from.read(at.now->rest);
    moved = moved || count > 0;
    at.now->rest = at.now->rest.subspan(static_cast<std::size_t>(count));
    if (!at.now->rest.empty()) break;
    end_frame(peer);
  }
  if (moved && from.take_wish()) memory_->ring_bell(peer);
  return moved;
}

bool engine::fits(std::int32_t peer, const frame& head, const wanted& receive) {
  if (receive.grows != nullptr || receive.room.size() == head.size_bytes) return true;
  poison(fail(errc::communication,
              fmt::format("the message of rank {} does not have the size that rank {} expects (tag {})", peer, rank_,
                          head.tag))
             .with_rank(peer)
             .with_values(detail::counted(receive.room.size(), "byte"), detail::counted(head.size_bytes, "byte")));
  return false;
}

void engine::begin_frame(std::int32_t peer, const frame& head) {
  line& at = of(peer);
  auto& places = head.kind == frame_kind::again ? at.refuseds : at.receives;
  const auto found = std::find_if(places.begin(), places.end(), [&](const wanted& receive) {
    return head.kind == frame_kind::again ? receive.head.number == head.number : is_same(receive.head, head);
  });
  try {
    const auto size = static_cast<std::size_t>(head.size_bytes);
    if (found == places.end()) {
      early& kept = at.earlies.emplace_back();
      kept.head = head;
      if (!head.has_bytes()) return;
      kept.bytes.resize(size);
      at.now.emplace(arriving{head, kept.bytes, std::nullopt});
      return;
    }
    wanted receive = std::move(*found);
    places.erase(found);
    if (!fits(peer, head, receive)) return;
    if (head.kind == frame_kind::lent) return take_lent(peer, head, std::move(receive));
    if (receive.grows != nullptr) {
      receive.grows->resize(size);
      receive.room = *receive.grows;
    }
    const std::span<std::byte> room = receive.room;
    at.now.emplace(arriving{head, room, std::move(receive)});
  } catch (const std::bad_alloc&) {
    poison(fail(errc::no_memory, fmt::format("rank {} has no memory for a message of {}", rank_,
                                             detail::counted(head.size_bytes, "byte")))
               .with_rank(rank_));
  }
}

void engine::end_frame(std::int32_t peer) {
  line& at = of(peer);
  const std::optional<wanted> to = std::move(at.now->to);
  at.now.reset();
  if (to) return finish(peer, *to);
  // It is the last early message with bytes, because no other message with bytes can have begun since.
  const auto kept = std::prev(std::find_if(at.earlies.rbegin(), at.earlies.rend(), [](const early& one) {
                                return one.head.has_bytes();
                              }).base());
  kept->is_whole = true;
  if (!kept->to) return;
  std::copy(kept->bytes.begin(), kept->bytes.end(), kept->to->room.begin());
  finish(peer, *kept->to);
  at.earlies.erase(kept);
}

void engine::finish(std::int32_t peer, const wanted& receive) {
  erase_one(receive.owner->senders, peer);
}

void engine::take_lent(std::int32_t peer, const frame& head, wanted receive) {
  line& at = of(peer);
  const detail::read_outcome outcome = at.memory.read(head.address, receive.room);
  if (outcome == detail::read_outcome::done) {
    finish(peer, receive);
    return answer(peer, {head.number, true});
  }
  receive.head = head;
  at.refuseds.push_back(std::move(receive));
  // `closed`: the peer is poisoned or gone, which waiting ranks notice. `refused`: only the owner can read this memory.
  if (outcome == detail::read_outcome::refused) answer(peer, {head.number, false});
}

void engine::answer(std::int32_t peer, const lent_answer& given) {
  memory_->between(rank_, peer).answer(given);
  memory_->ring_bell(peer);
}

bool engine::pull_answers(std::int32_t peer) {
  line& at = of(peer);
  const ring from = memory_->between(peer, rank_);
  const std::uint64_t count = from.answered();
  const bool any = at.answers_read != count;
  while (at.answers_read != count && !poison_) answered(peer, from.answer_at(at.answers_read++));
  return any;
}

void engine::answered(std::int32_t peer, const lent_answer& answer) {
  line& at = of(peer);
  const auto found =
      std::find_if(at.lents.begin(), at.lents.end(), [&](const lent& one) { return one.number == answer.number; });
  if (found == at.lents.end()) return;
  leaving what = std::move(found->what);
  at.lents.erase(found);
  --at.lent_count;
  if (answer.is_taken) return erase_one(what.owner->takers, peer);
  what.head.kind = frame_kind::again;
  what.is_headed = false;
  at.sends.push_back(std::move(what));
}

// Starts a receive. Its message may have arrived, may be arriving now, or may arrive later.
void engine::want(std::int32_t peer, wanted receive) {
  receive.owner->senders.push_back(peer);
  line& at = of(peer);
  const auto found = std::find_if(at.earlies.begin(), at.earlies.end(),
                                  [&](const early& kept) { return !kept.to && is_same(kept.head, receive.head); });
  if (found == at.earlies.end()) {
    at.receives.push_back(std::move(receive));
    return;
  }
  if (!fits(peer, found->head, receive)) return;
  if (receive.grows != nullptr) {
    receive.grows->resize(found->bytes.size());
    receive.room = *receive.grows;
  }
  if (found->head.kind == frame_kind::lent) {
    const frame head = found->head;
    at.earlies.erase(found);
    return take_lent(peer, head, std::move(receive));
  }
  if (!found->is_whole) {
    found->to = std::move(receive);
    return;
  }
  std::copy(found->bytes.begin(), found->bytes.end(), receive.room.begin());
  finish(peer, receive);
  at.earlies.erase(found);
}

// Clears the containers instead of replacing them: an empty deque may allocate, and there may be no memory.
void engine::line::drop_messages() noexcept {
  sends.clear();
  receives.clear();
  earlies.clear();
  now.reset();
  lents.clear();
  refuseds.clear();
}

// Poisons the group. Nothing moves afterwards, and no caller's memory is touched any more.
void engine::poison(error reason) noexcept {
  if (poison_) return;
  guard_.store(0);  // a peer that reads this rank's memory from now on discards the bytes
  memory_->set_poison(rank_, reason);
  try {
    poison_ = memory_->poison();
  } catch (const std::bad_alloc&) {  // this rank then keeps its own error
  }
  if (!poison_) poison_.emplace(std::move(reason));
  for (line& at : lines_) at.drop_messages();  // a peer may still read a lent message, but discards it
  memory_->ring_bell(rank_);
}

}  // namespace shardmesh::shared_memory
