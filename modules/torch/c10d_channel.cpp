// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/empty.h>
#include <c10/core/InferenceMode.h>
#include <torch/c10d_channel.hpp>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <chrono>
#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

namespace shardmesh::c10d_detail {
namespace {

// The engine enforces deadlines. A backend's own timeout would close the connections of the whole group, which has
// other users, after a period without messages.
constexpr std::chrono::milliseconds no_limit = std::chrono::hours(24 * 365);

class work_transfer final : public transfer {
 public:
  explicit work_transfer(std::size_t size) {
    const c10::InferenceMode plain(false);  // the receiving thread does not have the caller's mode
    tensors_.push_back(at::empty({static_cast<std::int64_t>(size)}, at::kByte));
  }
  std::vector<at::Tensor>& tensors() { return tensors_; }
  void started(c10::intrusive_ptr<c10d::Work> work, bool tells_source) {
    work_ = std::move(work);
    tells_source_ = tells_source;
  }

  std::span<std::byte> bytes() override {
    return {static_cast<std::byte*>(tensors_[0].mutable_data_ptr()), static_cast<std::size_t>(tensors_[0].numel())};
  }
  std::int32_t wait() override {
    if (!work_->wait(no_limit)) throw std::runtime_error("the process group ended the message");
    return tells_source_ ? work_->sourceRank() : -1;
  }

 private:
  std::vector<at::Tensor> tensors_;
  c10::intrusive_ptr<c10d::Work> work_;
  bool tells_source_ = false;
};

class group_channel final : public channel {
 public:
  explicit group_channel(c10::intrusive_ptr<c10d::ProcessGroup> group) : group_(std::move(group)) {}

  std::int32_t rank() const override { return group_->getRank(); }
  std::int32_t size() const override { return group_->getSize(); }
  const std::string& name() const override { return group_->getGroupName(); }

  std::unique_ptr<transfer> send(std::span<const std::byte> copied, std::int32_t peer, std::int32_t tag) override {
    auto made = std::make_unique<work_transfer>(copied.size());
    std::memcpy(made->bytes().data(), copied.data(), copied.size());
    made->started(group_->send(made->tensors(), peer, tag), false);
    return made;
  }
  std::unique_ptr<transfer> receive(std::size_t size, std::int32_t peer, std::int32_t tag) override {
    auto made = std::make_unique<work_transfer>(size);
    made->started(group_->recv(made->tensors(), peer, tag), false);
    return made;
  }
  std::unique_ptr<transfer> receive_from_any(std::size_t size, std::int32_t tag) override {
    auto made = std::make_unique<work_transfer>(size);
    made->started(group_->recvAnysource(made->tensors(), tag), true);
    return made;
  }

 private:
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
};

std::shared_ptr<channel> open(c10::intrusive_ptr<c10d::ProcessGroup> group) {
  bool has_host = false;
  for (const c10::Device& where : group->getDeviceTypes()) has_host = has_host || where.is_cpu();
  if (!has_host)
    throw std::invalid_argument("the process group " + group->getGroupName() + " has no backend for the CPU");
  return std::make_shared<group_channel>(std::move(group));
}

}  // namespace

std::shared_ptr<channel> channel::of(c10d::ProcessGroup& group) {
  return open(c10::intrusive_ptr<c10d::ProcessGroup>::unsafe_reclaim_from_nonowning(&group));
}

std::shared_ptr<channel> channel::named(const std::string& name) {
  return open(c10d::resolve_process_group(name));
}

}  // namespace shardmesh::c10d_detail
