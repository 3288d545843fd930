// SPDX-License-Identifier: Apache-2.0
module;
#include "includes.hpp"
module shardmesh.mpi;

import shardmesh.comm;
import :session;
import :staged;

namespace shardmesh::mpi {

bool staging::is_free() {
  int over = 0;
  if (request == MPI_REQUEST_NULL) return true;
  return succeeds([&] { return MPI_Test(&request, &over, MPI_STATUS_IGNORE); }) && over != 0;
}

abandoned_memory::abandoned_memory() {
  held_.reserve(most_abandoned);
}

void abandoned_memory::add(staging memory) noexcept {
  if (!is_up()) return held_.push_back(std::move(memory));  // MPI may not be called any more
  std::erase_if(held_, [](staging& held) { return held.is_free(); });
  if (!memory.is_free()) held_.push_back(std::move(memory));
}

abandoned_memory::~abandoned_memory() {
  const bool up = is_up();
  for (staging& held : held_)
    if (!up || !held.is_free()) static_cast<void>(held.bytes.release());
}

std::unique_ptr<std::byte[]> staging_pool::take() {
  if (free_.empty()) return std::make_unique_for_overwrite<std::byte[]>(chunk_);
  auto bytes = std::move(free_.back());
  free_.pop_back();
  return bytes;
}

void staging_pool::give_back(std::unique_ptr<std::byte[]> bytes) {
  if (free_.size() < most_bytes / chunk_) free_.push_back(std::move(bytes));
}

staged_transfer::staged_transfer(MPI_Comm comm, std::int32_t peer, int channel, const std::byte* from, std::byte* to,
                                 std::size_t size, staging_pool& pool)
    : comm_(comm),
      peer_(peer),
      channel_(channel),
      from_(from),
      to_(to),
      size_(size),
      pool_(pool),
      chunk_(std::min(pool.chunk(), size)) {
  slots_.resize(std::min(most_slots, (size - 1) / chunk_ + 1));
  for (staging& slot : slots_) slot.bytes = pool.take();
}

staged_transfer::~staged_transfer() {
  for (staging& slot : slots_) pool_.give_back(std::move(slot.bytes));
}

result<void> staged_transfer::post(std::size_t slot) {
  staging& at = slots_[slot];
  const std::size_t size = std::min(chunk_, size_ - posted_);
  const int count = static_cast<int>(size);
  if (from_ != nullptr) {
    std::memcpy(at.bytes.get(), from_ + posted_, size);
    SHARDMESH_TRY(
        called([&] { return MPI_Isend(at.bytes.get(), count, MPI_BYTE, peer_, channel_, comm_, &at.request); },
               "cannot send a part of a message"));
  } else {
    SHARDMESH_TRY(
        called([&] { return MPI_Irecv(at.bytes.get(), count, MPI_BYTE, peer_, channel_, comm_, &at.request); },
               "cannot receive a part of a message"));
  }
  posted_ += size;
  return {};
}

result<bool> staged_transfer::step() {
  bool moved = false;
  while (done_ < posted_) {  // chunks are completed in order
    staging& at = slots_[done_ / chunk_ % slots_.size()];
    int over = 0;
    SHARDMESH_TRY(
        called([&] { return MPI_Test(&at.request, &over, MPI_STATUS_IGNORE); }, "cannot move a part of a message"));
    if (over == 0) break;
    const std::size_t size = std::min(chunk_, size_ - done_);
    if (to_ != nullptr) std::memcpy(to_ + done_, at.bytes.get(), size);
    done_ += size;
    moved = true;
  }
  while (posted_ < size_ && posted_ - done_ < chunk_ * slots_.size()) {
    SHARDMESH_TRY(post(posted_ / chunk_ % slots_.size()));
    moved = true;
  }
  return moved;
}

void staged_transfer::abandon(abandoned_memory& to) noexcept {
  for (staging& slot : slots_) {
    if (to_ != nullptr && slot.request != MPI_REQUEST_NULL && is_up())
      static_cast<void>(succeeds([&] { return MPI_Cancel(&slot.request); }));
    to.add(std::move(slot));
  }
  slots_.clear();
}

}  // namespace shardmesh::mpi
