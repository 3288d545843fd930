// SPDX-License-Identifier: Apache-2.0
// The threads of an engine: receiving from other ranks, and shutting down.
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
#include <thread>
#include <tuple>
#include <utility>
#include <vector>
module shardmesh.torch;

import shardmesh.comm;
import :c10d_engine;

namespace shardmesh::c10d_detail {
namespace {

// The detached threads of all engines. Never destroyed: a thread can end after the program's last static object.
class threads_at_work {
 public:
  // Waits until no thread works, for at most a second. The program ends, and LibTorch's static objects are destroyed
  // next.
  void wait_a_moment() {
    if (!maker_.is_this()) return;  // a forked child has no such threads
    std::unique_lock locked(lock_);
    program_ends_ = true;
    may_use_group_ = true;
    changed_.notify_all();
    static_cast<void>(changed_.wait_for(locked, std::chrono::seconds(1), [&] { return count_ == 0; }));
    may_use_group_ = false;
  }
  bool program_ends() {
    const std::lock_guard locked(lock_);
    return program_ends_;
  }
  // A thread that comes late to the end of the program sleeps until the process is gone: LibTorch must not be used any
  // more, not even to destroy a tensor.
  void stay_if_too_late() {
    std::unique_lock locked(lock_);
    changed_.wait(locked, [&] { return may_use_group_; });
  }
  void add(int by) {
    const std::lock_guard locked(lock_);
    count_ += by;
    changed_.notify_all();
  }

 private:
  std::mutex lock_;
  std::condition_variable changed_;
  int count_ = 0;
  bool program_ends_ = false, may_use_group_ = true;
  detail::maker_process maker_;
};
threads_at_work& at_work() {
  static auto* const threads = new threads_at_work;
  // When a program ends while other ranks still listen, its last records get a moment to be sent.
  static const struct at_end {
    ~at_end() { threads->wait_a_moment(); }
  } wait;
  static_cast<void>(wait);
  return *threads;
}

// Waits for a message on a thread of an engine, and returns its source.
std::int32_t finish(transfer& moving) {
  std::int32_t source = -1;
  try {
    source = moving.wait();
  } catch (...) {
    at_work().stay_if_too_late();
    throw;
  }
  at_work().stay_if_too_late();
  return source;
}

// Payloads that no receiver took. They are kept: a peer may have started to receive one, and half a message would break
// the connection.
struct left_behind {
  std::mutex lock;
  std::vector<std::unique_ptr<transfer>> payloads;
};
left_behind& left_payloads() {
  static auto* const all = new left_behind;
  return *all;
}

}  // namespace

engine::~engine() {
  if (is_forked()) return;
  give_back_tags();
  const std::lock_guard locked(left_payloads().lock);
  for (auto& [key, sent] : sent_)
    if (sent.moving) left_payloads().payloads.push_back(std::move(sent.moving));
  // Unfinished transfers remain here only if a thread could not start.
  for (departing& one : to_finish_) left_payloads().payloads.push_back(std::move(one.moving));
  for (payload_coming& one : coming_) left_payloads().payloads.push_back(std::move(one.moving));
}

void engine::begin() {
  if (size() == 1) return;
  for (void (engine::* const work)() : {&engine::receive_records, &engine::receive_payloads, &engine::finish_sends}) {
    at_work().add(1);
    try {
      std::thread([self = shared_from_this(), work]() mutable {
        (self.get()->*work)();
        at_work().stay_if_too_late();
        self.reset();  // the last one destroys the process group, which counts as work
        at_work().add(-1);
      }).detach();
    } catch (const std::exception&) {
      at_work().add(-1);
      give_up_threads();
      throw;
    }
  }
}

// Notifies the other ranks that this one has left. The threads that did start end when the other ranks leave.
void engine::give_up_threads() {
  say_goodbye();
  const guard locked(lock_);
  forget_peers();
}

// Stops waiting for goodbyes.
void engine::forget_peers() {
  for (std::int32_t peer = 0; peer < size(); ++peer)
    if (peer != rank() && std::find(gone_.begin(), gone_.end(), peer) == gone_.end()) gone_.push_back(peer);
  changed_.notify_all();
}

void engine::leave() {
  if (is_forked()) return;  // the parent still uses it
  say_goodbye();
  if (at_work().program_ends()) at_work().wait_a_moment();  // the handle was a static object
}

void engine::say_goodbye() {
  const guard locked(lock_);
  is_left_ = true;
  // Another rank's error may not have reached every rank yet. Sent from here, it reaches each of them before this
  // goodbye.
  if (poison_ && !has_told_) tell_peers();
  record head;
  head.kind = record_kind::goodbye;
  for (std::int32_t peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    try {
      send_record(peer, head);
    } catch (const std::exception&) {  // the connection failed, so the other side knows
    }
  }
  changed_.notify_all();
}

// Receives from each rank until it has said goodbye: an abandoned receive would break the group's connection.
void engine::receive_records() {
  const auto all_gone = [&] { return gone_.size() + 1 == static_cast<std::size_t>(size()); };
  guard locked(lock_);
  while (!all_gone()) {
    locked.unlock();
    record head;
    std::int32_t peer = -1;
    std::optional<error> problem;
    try {
      const auto coming = group_->receive_from_any(sizeof(record), base_tag_ + record_slot);
      peer = finish(*coming);
      std::memcpy(&head, coming->bytes().data(), sizeof(record));
    } catch (const std::exception& e) {
      problem = channel_problem(e, "receives from", -1, {record_kind::goodbye, 0, {}});
    }
    locked.lock();
    if (problem) {
      // This rank receives nothing from now on, so it waits for no goodbye; the others still receive its own.
      poison(*std::move(problem), true);
      forget_peers();
    } else {
      heard(peer, head);
    }
  }
  changed_.notify_all();
}

// Receives the payloads in the order of matching. The senders have already sent them.
void engine::receive_payloads() {
  guard locked(lock_);
  for (;;) {
    changed_.wait(locked, [&] { return !coming_.empty() || is_closed(); });
    if (coming_.empty()) return;
    payload_coming next = std::move(coming_.front());
    coming_.pop_front();
    locked.unlock();
    std::optional<error> problem;
    try {
      finish(*next.moving);
    } catch (const std::exception& e) {
      problem = channel_problem(e, "receives from", next.peer, named(next.head));
    }
    locked.lock();
    if (problem) {
      poison(*std::move(problem), true);
      continue;
    }
    record answer;
    answer.kind = record_kind::taken;
    answer.number = next.head.number;
    const char* doing = "receives from";
    try {
      take(next.peer, next.head, next.to, next.moving->bytes());
      if (poison_) continue;  // the payload stays with its sender
      doing = "sends to";
      send_record(next.peer, answer);
    } catch (const std::exception& e) {
      poison(channel_problem(e, doing, next.peer, named(next.head)), true);
    }
  }
}

void engine::send_record(std::int32_t peer, const record& head) {
  to_finish_.push_back(
      {group_->send(std::as_bytes(std::span(&head, 1)), peer, base_tag_ + record_slot), peer, named(head)});
  changed_.notify_all();
}

// Keeps each send until its receiver has it.
void engine::finish_sends() {
  guard locked(lock_);
  for (;;) {
    changed_.wait(locked, [&] { return !to_finish_.empty() || is_closed(); });
    if (to_finish_.empty()) return;
    const departing next = std::move(to_finish_.front());
    to_finish_.pop_front();
    locked.unlock();
    std::optional<error> problem;
    try {
      finish(*next.moving);
    } catch (const std::exception& e) {
      problem = channel_problem(e, "sends to", next.peer, next.name);
    }
    locked.lock();
    if (problem) poison(*std::move(problem), true);
  }
}

}  // namespace shardmesh::c10d_detail
