// SPDX-License-Identifier: Apache-2.0
// Matching and progress of messages.
module;
#include <plural.hpp>
#include "includes.hpp"
module shardmesh.mpi;

import shardmesh.comm;
import :control;
import :engine;
import :record;
import :session;
import :staged;

namespace shardmesh::mpi {
namespace {

// The bytes read under the lock at a time; few enough that an abort is seen soon.
constexpr std::size_t read_step = 4 << 20;

// The key of a message line: 31 bits of the rank, 1 bit for all_gathers, 32 bits of the tag.
std::uint64_t line_key(std::int32_t peer, std::uint64_t tag, bool in_gather) {
  return static_cast<std::uint64_t>(peer) << 33 | static_cast<std::uint64_t>(in_gather) << 32 | tag;
}

error size_mismatch(std::int32_t from, std::int32_t to, std::uint64_t tag, std::uint64_t expected,
                    std::uint64_t found) {
  return fail(errc::communication, fmt::format("a message from rank {} to rank {} has different sizes on the two sides "
                                               "(tag {})",
                                               from, to, tag))
      .with_rank(from)
      .with_rank(to)
      .with_values(detail::counted(expected, "byte") + " by the receiver", detail::counted(found, "byte") + " sent");
}

}  // namespace

// Starts a receive: matches it with the oldest announced message of its peer and tag, or queues it.
void engine::expect(incoming_message message) {
  const std::uint64_t id = next_id_++;
  const std::int32_t peer = message.peer;
  const std::uint64_t key = line_key(peer, message.owner->tag, message.owner->is_gather);
  ++message.owner->open;
  incoming_.emplace(id, std::move(message));
  message_line& line = lines_[key];
  if (line.announced.empty()) return line.receives.push_back(id);
  const message_line::announcement first = std::move(line.announced.front());
  line.announced.pop_front();
  if (line.announced.empty()) lines_.erase(key);
  match(peer, id, first.head, first.bytes);
}

void engine::announce(outgoing_message message) {
  const exchange& e = *message.owner;
  const std::span<const std::byte> bytes = message.bytes;
  const std::int32_t peer = message.peer;
  const bool is_small = bytes.size() <= inline_bytes;
  record_head head{.kind = is_small ? record_kind::ready_with_bytes : record_kind::ready,
                   .in_gather = e.is_gather ? 1U : 0U,
                   .tag = e.tag,
                   .sender_id = next_id_++,
                   .size = bytes.size()};
  std::copy_n(e.call, std::min(std::strlen(e.call), head.call.size() - 1), head.call.begin());
  if (!is_small && !peers_[static_cast<std::size_t>(peer)].is_readable())
    head.channel = static_cast<std::uint64_t>(push(message, head.sender_id));
  if (!is_small) head.address = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(bytes.data()));
  if (is_small && e.is_gather) return send(peer, head, e, bytes);  // not answered, so nothing to wait for
  ++message.owner->open;
  const std::shared_ptr<const exchange> owner = message.owner;
  outgoing_.emplace(head.sender_id, std::move(message));
  send(peer, head, *owner, is_small ? bytes : std::span<const std::byte>());
}

// Starts to send a message without a grant, to save small messages a round trip. Returns its channel, or 0 if none is
// free or MPI failed. The channel stays occupied until the receiver has the message. Otherwise, chunks of a later
// message could be taken for chunks of this one.
int engine::push(const outgoing_message& message, std::uint64_t id) {
  for (std::size_t i = 0; i < pushing_.size() && !poison_; ++i) {
    transfer& at = pushing_[i];
    if (at.id != 0 || at.moving) continue;
    const int channel = static_cast<int>(most_transfers + i);
    at.id = id;
    at.moving.emplace(data_comm_, message.peer, channel, message.bytes.data(), nullptr, message.bytes.size(), *pool_);
    if (auto begun = at.moving->step(); !begun) {
      poison(failed(std::move(begun).error(), "cannot send to", message.peer, *message.owner), true, true);
      return 0;
    }
    return channel;
  }
  return 0;
}

// Moves messages. A failure of MPI itself poisons the communicator; waiting threads find the poison.
bool engine::progress() {
  if (poison_) return false;
  auto moved = try_progress();
  if (moved) return *moved;
  if (!poison_) poison(std::move(moved).error(), true, true);
  return true;
}

result<bool> engine::try_progress() {
  const auto heard =
      control_->poll([this](std::int32_t peer, const record_head& head, std::span<const std::byte> bytes) {
        if (!poison_) handle(peer, head, bytes);
      });
  if (!heard) {
    error why = heard.error();
    why.message = fmt::format("rank {} cannot receive from other ranks: {}", rank_, why.message);
    return std::move(why).with_rank(rank_);
  }
  if (poison_) return true;
  const bool read = read_some();
  if (poison_) return true;
  SHARDMESH_TRY(const bool stepped, step_staged());
  return *heard || read || stepped;
}

void engine::send(std::int32_t peer, const record_head& head, const exchange& e, std::span<const std::byte> bytes) {
  if (poison_) return;
  if (auto done = control_->send(peer, head, bytes); !done)
    poison(failed(std::move(done).error(), "cannot send to", peer, e), true, true);
}

void engine::handle(std::int32_t peer, const record_head& head, std::span<const std::byte> bytes) {
  switch (head.kind) {
    case record_kind::ready:
    case record_kind::ready_with_bytes: {
      heard_[static_cast<std::size_t>(peer)] = {clock::now(), head.call, head.in_gather != 0};
      const std::uint64_t key = line_key(peer, head.tag, head.in_gather != 0);
      message_line& line = lines_[key];
      if (line.receives.empty()) {
        line.announced.push_back({head, {bytes.begin(), bytes.end()}});
        return;
      }
      const std::uint64_t id = line.receives.front();
      line.receives.pop_front();
      if (line.receives.empty()) lines_.erase(key);
      return match(peer, id, head, bytes);
    }
    case record_kind::grant:
      if (outgoing_.contains(head.sender_id)) to_send_.push_back({head.sender_id, static_cast<int>(head.channel)});
      return;
    case record_kind::taken:
      return sent(head.sender_id);
    case record_kind::stop:
      return poison(error_from_bytes(bytes).value_or(
                        fail(errc::communication, "a rank ended the communicator, and its reason cannot be read")
                            .with_rank(peer)),
                    head.size != 0, false);
  }
}

void engine::match(std::int32_t peer, std::uint64_t id, const record_head& head, std::span<const std::byte> bytes) {
  incoming_message& message = incoming_.at(id);
  if (message.grows != nullptr) {
    message.grows->resize(static_cast<std::size_t>(head.size));
    message.bytes = *message.grows;
  }
  if (head.size != message.bytes.size())
    return poison(size_mismatch(peer, rank_, head.tag, message.bytes.size(), head.size), false, true);
  message.sender_id = head.sender_id;
  message.address = head.address;
  message.channel = static_cast<int>(head.channel);
  if (head.kind == record_kind::ready_with_bytes) {
    std::copy_n(bytes.begin(), std::min(bytes.size(), message.bytes.size()), message.bytes.begin());
    return taken(id);
  }
  const bool is_read = message.channel == 0 && peers_[static_cast<std::size_t>(peer)].is_readable();
  (is_read ? reading_ : to_grant_).push_back(id);
}

void engine::taken(std::uint64_t id) {
  const auto at = incoming_.find(id);
  const std::shared_ptr<exchange> owner = at->second.owner;
  --owner->open;
  const std::int32_t peer = at->second.peer;
  const record_head head{.kind = record_kind::taken, .sender_id = at->second.sender_id};
  const bool is_awaited = at->second.grows == nullptr || at->second.bytes.size() > inline_bytes;
  incoming_.erase(at);
  if (is_awaited) send(peer, head, *owner);
}

void engine::sent(std::uint64_t id) {
  const auto at = outgoing_.find(id);
  if (at == outgoing_.end()) return;
  --at->second.owner->open;
  outgoing_.erase(at);
  for (transfer& pushed : pushing_)
    if (pushed.id == id) pushed.id = 0;
}

// Reads the next part of the oldest message that can be read from its sender's memory.
bool engine::read_some() {
  if (reading_.empty()) return false;
  const std::uint64_t id = reading_.front();
  incoming_message& message = incoming_.at(id);
  const peer_memory& peer = peers_[static_cast<std::size_t>(message.peer)];
  const std::size_t size = std::min(read_step, message.bytes.size() - message.read_bytes);
  const read_outcome outcome =
      peer.read(message.address + message.read_bytes, message.bytes.subspan(message.read_bytes, size));
  if (outcome == read_outcome::done) {
    message.read_bytes += size;
    if (message.read_bytes < message.bytes.size()) return true;
  }
  reading_.pop_front();
  if (outcome == read_outcome::done) taken(id);
  if (outcome == read_outcome::refused) to_grant_.push_back(id);
  return true;  // closed: the peer gave up, and either its `stop` arrives or watch_peers detects it
}

// Names the peer and the call in an error of sending. The message may be gone already: the receiver may have
// acknowledged it while a request is still open here.
error engine::failed_sending(error why, std::uint64_t id) const {
  const auto at = outgoing_.find(id);
  if (at == outgoing_.end()) return std::move(why).with_rank(rank_);
  return failed(std::move(why), "cannot send to", at->second.peer, *at->second.owner);
}

result<bool> engine::step_staged() {
  bool moved = false;
  for (std::size_t channel = 0; channel < receiving_.size(); ++channel) {
    transfer& at = receiving_[channel];
    if (at.id == 0 && !to_grant_.empty()) {
      at.id = to_grant_.front();
      to_grant_.pop_front();
      incoming_message& m = incoming_.at(at.id);
      at.moving.emplace(data_comm_, m.peer, m.channel != 0 ? m.channel : static_cast<int>(channel), nullptr,
                        m.bytes.data(), m.bytes.size(), *pool_);
      // Post the receives before the sender gets the grant.
      if (auto begun = at.moving->step(); !begun)
        return failed(std::move(begun).error(), "cannot receive from", m.peer, *m.owner);
      moved = true;
      if (m.channel == 0)
        send(m.peer, {.kind = record_kind::grant, .sender_id = m.sender_id, .channel = channel}, *m.owner);
      if (poison_) return true;
    }
    if (at.id == 0) continue;
    const auto stepped = at.moving->step();
    if (!stepped) {
      const incoming_message& m = incoming_.at(at.id);
      return failed(stepped.error(), "cannot receive from", m.peer, *m.owner);
    }
    moved |= *stepped;
    if (!at.moving->is_finished()) continue;
    at.moving.reset();
    taken(std::exchange(at.id, 0));
    if (poison_) return true;
  }
  for (transfer& at : pushing_) {
    if (!at.moving) continue;
    const auto stepped = at.moving->step();
    if (!stepped) return failed_sending(stepped.error(), at.id);
    moved |= *stepped;
    if (at.moving->is_finished()) at.moving.reset();
  }
  for (transfer& at : sending_) {
    if (at.id == 0 && !to_send_.empty()) {
      const granted next = to_send_.front();
      to_send_.pop_front();
      const outgoing_message& m = outgoing_.at(next.id);
      at.id = next.id;
      at.moving.emplace(data_comm_, m.peer, next.channel, m.bytes.data(), nullptr, m.bytes.size(), *pool_);
    }
    if (at.id == 0) continue;
    const auto stepped = at.moving->step();
    if (!stepped) return failed_sending(stepped.error(), at.id);
    moved |= *stepped;
    if (!at.moving->is_finished()) continue;  // after that, the receiver answers `taken`
    at.moving.reset();
    at.id = 0;
  }
  return moved;
}

}  // namespace shardmesh::mpi
