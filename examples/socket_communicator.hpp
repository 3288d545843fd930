// SPDX-License-Identifier: Apache-2.0
// A communicator over connected sockets of any kind: own_transport uses socket pairs, custom_framework TCP.
//
// Each pair of ranks has two sockets: one for data frames, and one for the reason why a rank gives up. The reason
// therefore never waits behind data that nobody reads. Bytes move only during calls of the rank, so that after an error
// the library no longer touches the user's memory.
#pragma once
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

import shardmesh.transfer;

namespace sockets {
using namespace shardmesh;

using clock_type = std::chrono::steady_clock;
using bytes = std::vector<std::byte>;

class file_descriptor {
 public:
  file_descriptor() = default;
  explicit file_descriptor(int number) : number_(number) {}
  file_descriptor(file_descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  file_descriptor& operator=(file_descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~file_descriptor() {
    if (number_ >= 0) close(number_);
  }
  int number() const { return number_; }

 private:
  int number_ = -1;
};

// A frame on the data socket: a head, then `size` bytes. Gathers have their own tags: their number.
struct frame_head {
  std::uint32_t in_gather = 0, tag = 0;
  std::uint64_t size = 0;
};

// The key by which two ranks' messages match.
using line_key = std::tuple<std::int32_t, std::uint32_t, std::uint32_t>;  // peer, in_gather, tag

struct exchange {
  std::string what;      // "an all_gather of save (tag 0)", for errors
  std::size_t open = 0;  // messages not yet complete
  clock_type::time_point began = clock_type::now();
};

inline std::shared_ptr<exchange> begin_exchange(const char* kind, const call_options& options) {
  const auto e = std::make_shared<exchange>();
  e->what = std::string(kind) + (*options.name != '\0' ? " of " : "") + options.name + " (tag " +
            std::to_string(options.tag) + ")";
  return e;
}

struct waiting_receive {
  std::span<std::byte> room;
  bytes* grows = nullptr;  // for a gather, any size
  std::shared_ptr<exchange> owner;
};

struct leaving_frame {
  bytes content;  // head and bytes
  std::size_t written = 0;
  std::shared_ptr<exchange> owner;
};

struct peer_link {
  file_descriptor data, control;
  bool closed = false;
  std::deque<leaving_frame> leaving;
  bytes arriving;  // the frame being read, head first
  bytes reason;    // why the peer gave up
};

class socket_rank {
 public:
  socket_rank(std::int32_t rank, std::vector<peer_link> peers) : rank_(rank), peers_(std::move(peers)) {}

  std::int32_t rank() const { return rank_; }
  std::int32_t size() const { return static_cast<std::int32_t>(peers_.size()); }

  result<void> check(const call_options& options, const exchange& e) {
    progress(0);
    if (!poison_ && options.stream.handle != nullptr)
      return fail(errc::unsupported, "sockets know no device streams").with_rank(rank_);
    const std::string me = "rank " + std::to_string(rank_);
    if (!poison_ && options.cancel.stop_requested())
      give_up(fail(errc::cancelled, me + " was cancelled before " + e.what).with_rank(rank_));
    if (!poison_ && options.within && e.began >= *options.within)
      give_up(fail(errc::deadline_exceeded, "the deadline of " + me + " had passed before " + e.what).with_rank(rank_));
    return poison_ ? result<void>(*poison_) : result<void>();
  }

  template <class Message>
  result<void> check_peers(std::span<const Message> messages) const {
    std::vector<bool> met(peers_.size());
    for (const Message& m : messages) {
      const auto refuse = [&](const char* why) {
        return fail(errc::invalid_argument, "rank " + std::to_string(rank_) + " names a peer that " + why)
            .with_rank(m.peer);
      };
      if (m.peer == rank_) return refuse("is itself");
      if (m.peer < 0 || m.peer >= size()) return refuse("the group lacks");
      if (m.bytes.empty()) return refuse("has nothing to send or to get");
      if (met[static_cast<std::size_t>(m.peer)]) return refuse("it named before");
      met[static_cast<std::size_t>(m.peer)] = true;
    }
    return {};
  }

  void send(std::int32_t peer, frame_head head, std::span<const std::byte> content,
            const std::shared_ptr<exchange>& owner) {
    leaving_frame frame{bytes(sizeof head + content.size()), 0, owner};
    head.size = content.size();
    std::memcpy(frame.content.data(), &head, sizeof head);
    if (!content.empty()) std::memcpy(frame.content.data() + sizeof head, content.data(), content.size());
    ++owner->open;
    link(peer).leaving.push_back(std::move(frame));
  }

  void receive(std::int32_t peer, const frame_head& head, waiting_receive target) {
    ++target.owner->open;
    const line_key key{peer, head.in_gather, head.tag};
    if (auto& come = arrived_[key]; !come.empty()) {
      const bytes content = std::move(come.front());
      come.pop_front();
      return deliver(key, target, content);
    }
    waiting_[key].push_back(std::move(target));
  }

  bool is_over(const exchange& e, const call_options& options) {
    progress(0);
    return e.open == 0 || poison_ || options.cancel.stop_requested() ||
           (options.within && clock_type::now() >= *options.within);
  }

  result<void> wait(const std::shared_ptr<exchange>& e, const call_options& options) {
    while (e->open > 0 && !poison_) {
      progress(1);
      if (e->open > 0 && !poison_) interrupt(options, e);
    }
    return poison_ ? result<void>(*poison_) : result<void>();
  }

  // After this call, all further calls fail with `reason`, here and on the peers.
  void give_up(error reason) {
    if (poison_) return;
    const bytes told = to_bytes(reason);
    poison_ = std::move(reason);
    for (peer_link& peer : peers_) {
      if (peer.control.number() < 0) continue;
      static_cast<void>(::send(peer.control.number(), told.data(), told.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
      shutdown(peer.control.number(), SHUT_WR);  // the reason ends here
    }
  }

  std::uint32_t next_gather() { return gathers_++; }

 private:
  peer_link& link(std::int32_t peer) { return peers_[static_cast<std::size_t>(peer)]; }

  // Handles a call that is cancelled or late, or that waits for a rank that is gone.
  void interrupt(const call_options& options, const std::shared_ptr<exchange>& e) {
    std::vector<std::int32_t> missing;
    for (const auto& [key, line] : waiting_)
      for (const waiting_receive& one : line)
        if (one.owner == e) missing.push_back(std::get<0>(key));
    for (std::int32_t peer = 0; peer < size(); ++peer)
      for (const leaving_frame& one : link(peer).leaving)
        if (one.owner == e) missing.push_back(peer);
    std::sort(missing.begin(), missing.end());
    missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
    const std::string me = "rank " + std::to_string(rank_);
    const auto gone =
        std::find_if(missing.begin(), missing.end(), [&](std::int32_t peer) { return link(peer).closed; });
    if (gone != missing.end())
      return give_up(fail(errc::communication, me + " waits for a rank that has left").with_rank(*gone));
    if (options.cancel.stop_requested())
      return give_up(fail(errc::cancelled, me + " was cancelled in " + e->what).with_rank(rank_));
    const auto now = clock_type::now();
    if (!options.within || now < *options.within) return;
    const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(now - e->began);
    error late = fail(errc::deadline_exceeded, me + " timed out after " + std::to_string(waited.count()) +
                                                   " ms waiting for other ranks in " + e->what);
    late.ranks = missing;
    give_up(std::move(late));
  }

  void deliver(const line_key& key, const waiting_receive& target, const bytes& content) {
    if (target.grows != nullptr)
      *target.grows = content;
    else if (content.size() == target.room.size())
      std::copy(content.begin(), content.end(), target.room.begin());
    else
      return give_up(fail(errc::communication, "a message has different sizes on the two sides")
                         .with_rank(std::get<0>(key))
                         .with_rank(rank_)
                         .with_values(std::to_string(target.room.size()) + " bytes by the receiver",
                                      std::to_string(content.size()) + " bytes sent"));
    --target.owner->open;
  }

  void progress(int milliseconds) {
    if (poison_) return;
    std::vector<pollfd> polled;
    for (const peer_link& peer : peers_) {
      const bool open = peer.data.number() >= 0 && !peer.closed;
      const auto writes = static_cast<short>(peer.leaving.empty() ? 0 : POLLOUT);
      polled.push_back({open ? peer.data.number() : -1, static_cast<short>(POLLIN | writes), 0});
      polled.push_back({open ? peer.control.number() : -1, POLLIN, 0});
    }
    if (poll(polled.data(), polled.size(), milliseconds) <= 0) return;
    for (std::int32_t peer = 0; peer < size() && !poison_; ++peer) {
      const auto at = static_cast<std::size_t>(peer) * 2;
      if (polled[at + 1].revents != 0) hear(peer);
      if (!poison_ && (polled[at].revents & POLLOUT) != 0) write_to(link(peer));
      if (!poison_ && (polled[at].revents & (POLLIN | POLLHUP | POLLERR)) != 0) read_from(peer);
    }
  }

  // Reads a peer's reason; it is complete when its end has arrived.
  void hear(std::int32_t peer) {
    std::array<std::byte, 4096> part;
    const ssize_t size = recv(link(peer).control.number(), part.data(), part.size(), MSG_DONTWAIT);
    bytes& reason = link(peer).reason;
    if (size > 0) {
      reason.insert(reason.end(), part.begin(), part.begin() + size);
    } else if (size == 0) {
      if (reason.empty()) {
        link(peer).control = file_descriptor();  // it has left, perhaps with data still to read
        return;
      }
      give_up(error_from_bytes(reason).value_or(fail(errc::communication, "a rank gave up").with_rank(peer)));
    }
  }

  void write_to(peer_link& peer) {
    while (!peer.leaving.empty()) {
      leaving_frame& frame = peer.leaving.front();
      const ssize_t size = ::send(peer.data.number(), frame.content.data() + frame.written,
                                  frame.content.size() - frame.written, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (size < 0) {
        if (errno == EPIPE || errno == ECONNRESET) peer.closed = true;
        return;
      }
      frame.written += static_cast<std::size_t>(size);
      if (frame.written < frame.content.size()) return;
      --frame.owner->open;
      peer.leaving.pop_front();
    }
  }

  void read_from(std::int32_t peer) {
    bytes& frame = link(peer).arriving;
    for (;;) {
      frame_head head;
      std::size_t wanted = sizeof head;
      if (frame.size() >= sizeof head) {
        std::memcpy(&head, frame.data(), sizeof head);
        wanted += head.size;
        if (frame.size() == wanted) {
          const bytes content(frame.begin() + sizeof head, frame.end());
          frame.clear();
          take({peer, head.in_gather, head.tag}, content);
          if (poison_) return;
          continue;
        }
      }
      const std::size_t before = frame.size(), most = std::min<std::size_t>(wanted - before, 1 << 20);
      frame.resize(before + most);
      const ssize_t size = recv(link(peer).data.number(), frame.data() + before, most, MSG_DONTWAIT);
      frame.resize(before + static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
      if (size == 0) link(peer).closed = true;
      if (size <= 0) return;
    }
  }

  void take(const line_key& key, const bytes& content) {
    const auto line = waiting_.find(key);
    if (line == waiting_.end()) {
      arrived_[key].push_back(content);
      return;
    }
    const waiting_receive target = std::move(line->second.front());
    line->second.pop_front();
    if (line->second.empty()) waiting_.erase(line);
    deliver(key, target, content);
  }

  std::int32_t rank_ = 0;
  std::vector<peer_link> peers_;
  std::optional<error> poison_;
  std::map<line_key, std::deque<waiting_receive>> waiting_;
  std::map<line_key, std::deque<bytes>> arrived_;
  std::uint32_t gathers_ = 0;
};

// One rank of a group over sockets. Movable; only one thread may use it at a time.
class socket_communicator {
 public:
  explicit socket_communicator(std::shared_ptr<socket_rank> rank) : rank_(std::move(rank)) {}

  std::int32_t rank() const { return rank_->rank(); }
  std::int32_t size() const { return rank_->size(); }

  result<std::vector<bytes>> all_gather(std::span<const std::byte> mine, const call_options& options) {
    const auto e = begin_exchange("an all_gather", options);
    SHARDMESH_TRY(rank_->check(options, *e));
    std::vector<bytes> all(static_cast<std::size_t>(size()));
    all[static_cast<std::size_t>(rank())].assign(mine.begin(), mine.end());
    const frame_head head{.in_gather = 1, .tag = rank_->next_gather()};
    for (std::int32_t peer = 0; peer < size(); ++peer) {
      if (peer == rank()) continue;
      rank_->send(peer, head, mine, e);
      rank_->receive(peer, head, {.room = {}, .grows = &all[static_cast<std::size_t>(peer)], .owner = e});
    }
    SHARDMESH_TRY(rank_->wait(e, options));
    return all;
  }

  result<pending> start_exchange(std::span<const outgoing> sends, std::span<const incoming> receives,
                                 const call_options& options) {
    const auto e = begin_exchange("an exchange", options);
    SHARDMESH_TRY(rank_->check(options, *e));
    SHARDMESH_TRY(rank_->check_peers(sends));
    SHARDMESH_TRY(rank_->check_peers(receives));
    const frame_head head{.tag = options.tag};
    for (const outgoing& m : sends) rank_->send(m.peer, head, m.bytes, e);
    for (const incoming& m : receives) rank_->receive(m.peer, head, {.room = m.bytes, .grows = nullptr, .owner = e});
    return pending(std::make_unique<running>(rank_, e, options));
  }

  void abort(const error& reason) { rank_->give_up(reason); }

 private:
  struct running final : pending::operation {
    running(std::shared_ptr<socket_rank> r, std::shared_ptr<exchange> started, call_options o)
        : rank(std::move(r)), e(std::move(started)), options(std::move(o)) {}
    bool done() override { return rank->is_over(*e, options); }
    result<void> wait() override { return rank->wait(e, options); }
    std::shared_ptr<socket_rank> rank;
    std::shared_ptr<exchange> e;
    call_options options;
  };

  std::shared_ptr<socket_rank> rank_;
};

static_assert(communicator<socket_communicator>);

}  // namespace sockets
