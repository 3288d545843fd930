// SPDX-License-Identifier: Apache-2.0
// LibTorch process groups whose ranks are in this process, over a test backend that fails on request. Include before
// imports.
#pragma once
#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

/// The calls of a rank to the backend.
enum class loopback_call { send, send_wait, receive, receive_wait, receive_any, receive_any_wait };

/// The messages of all ranks.
struct loopback_world {
  std::mutex lock;
  std::condition_variable changed;
  std::map<std::tuple<int, int, int>, std::deque<std::vector<std::uint8_t>>> mail;  // by sender, receiver, and tag
  std::map<std::pair<loopback_call, int>, int> calls;                               // by call and rank
  /// Runs at each call of a rank, with the call's number (from 1) and the tag; may throw.
  std::function<void(loopback_call, int rank, int number, int tag)> on_call = [](loopback_call, int, int, int) {};

  void called(loopback_call what, int rank, int tag) {
    int number = 0;
    {
      const std::lock_guard locked(lock);
      number = ++calls[{what, rank}];
    }
    on_call(what, rank, number, tag);
  }
};

class loopback_work final : public c10d::Work {
 public:
  /// `from` is -1 for any rank.
  loopback_work(std::shared_ptr<loopback_world> world, loopback_call what, std::vector<at::Tensor> tensors, int from,
                int rank, int tag)
      : world_(std::move(world)), what_(what), tensors_(std::move(tensors)), from_(from), rank_here_(rank), tag_(tag) {}
  int sourceRank() const override { return from_; }
  bool wait(std::chrono::milliseconds) override {
    if (what_ != loopback_call::send_wait) take();
    world_->called(what_, rank_here_, tag_);
    return true;
  }

 private:
  void take() {
    std::unique_lock locked(world_->lock);
    const auto found = [&] {
      for (auto at = world_->mail.begin(); at != world_->mail.end(); ++at) {
        const auto& [from, to, tag] = at->first;
        if (to == rank_here_ && tag == tag_ && (from_ < 0 || from == from_)) return at;
      }
      return world_->mail.end();
    };
    world_->changed.wait(locked, [&] { return found() != world_->mail.end(); });
    const auto at = found();
    from_ = std::get<0>(at->first);
    const std::vector<std::uint8_t>& bytes = at->second.front();
    TORCH_CHECK(static_cast<std::int64_t>(bytes.size()) == tensors_[0].numel(), "a message of another size");
    std::memcpy(tensors_[0].mutable_data_ptr(), bytes.data(), bytes.size());
    at->second.pop_front();
    if (at->second.empty()) world_->mail.erase(at);
  }

  std::shared_ptr<loopback_world> world_;
  loopback_call what_;
  std::vector<at::Tensor> tensors_;
  int from_, rank_here_, tag_;
};

class loopback_backend final : public c10d::Backend {
 public:
  loopback_backend(std::shared_ptr<loopback_world> world, int rank, int size)
      : Backend(rank, size), world_(std::move(world)) {}
  const std::string getBackendName() const override { return "loopback"; }

  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>& tensors, int to, int tag) override {
    world_->called(loopback_call::send, getRank(), tag);
    const auto* const bytes = static_cast<const std::uint8_t*>(tensors[0].const_data_ptr());
    {
      const std::lock_guard locked(world_->lock);
      world_->mail[{getRank(), to, tag}].emplace_back(bytes, bytes + tensors[0].numel());
    }
    world_->changed.notify_all();
    return work(loopback_call::send_wait, tensors, to, tag);
  }
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& tensors, int from, int tag) override {
    world_->called(loopback_call::receive, getRank(), tag);
    return work(loopback_call::receive_wait, tensors, from, tag);
  }
  c10::intrusive_ptr<c10d::Work> recvAnysource(std::vector<at::Tensor>& tensors, int tag) override {
    world_->called(loopback_call::receive_any, getRank(), tag);
    return work(loopback_call::receive_any_wait, tensors, -1, tag);
  }

 private:
  c10::intrusive_ptr<c10d::Work> work(loopback_call what, const std::vector<at::Tensor>& tensors, int peer, int tag) {
    return c10::make_intrusive<loopback_work>(world_, what, tensors, peer, getRank(), tag);
  }
  std::shared_ptr<loopback_world> world_;
};

/// The process group of each rank.
class loopback_group {
 public:
  explicit loopback_group(int size, const std::string& name) {
    for (int rank = 0; rank < size; ++rank) {
      auto made = c10::make_intrusive<c10d::ProcessGroup>(rank, size);
      made->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::CUSTOM,
                       c10::make_intrusive<loopback_backend>(world_, rank, size));
      made->setGroupName(name);
      groups_.push_back(std::move(made));
    }
  }
  loopback_world& world() { return *world_; }
  c10d::ProcessGroup& of(int rank) { return *groups_[static_cast<std::size_t>(rank)]; }

  /// Whether communicators and their threads release the groups within ten seconds.
  bool is_let_go() {
    const auto is_free = [&] {
      for (const auto& one : groups_)
        if (one.use_count() != 1) return false;
      return true;
    };
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!is_free() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    return is_free();
  }

 private:
  std::shared_ptr<loopback_world> world_ = std::make_shared<loopback_world>();
  std::vector<c10::intrusive_ptr<c10d::ProcessGroup>> groups_;
};
