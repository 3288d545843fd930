// SPDX-License-Identifier: Apache-2.0
// The rings of a segment: one writer, one reader, no lock.
module;
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
module shardmesh.shared_memory;

import :segment;

namespace shardmesh::shared_memory {

std::uint64_t ring::readable() const {
  return state_->written.load(std::memory_order_acquire) - state_->read.load(std::memory_order_relaxed);
}

std::uint64_t ring::writable() const {
  return capacity_ - (state_->written.load(std::memory_order_relaxed) - state_->read.load(std::memory_order_acquire));
}

std::uint64_t ring::write(std::span<const std::byte> bytes) {
  const std::uint64_t at = state_->written.load(std::memory_order_relaxed);
  const std::uint64_t count = std::min<std::uint64_t>(bytes.size(), writable());
  if (count == 0) return 0;
  const std::uint64_t begin = at % capacity_, first = std::min(count, capacity_ - begin);
  std::memcpy(bytes_ + begin, bytes.data(), first);
  std::memcpy(bytes_, bytes.data() + first, count - first);
  state_->written.store(at + count, std::memory_order_release);
  return count;
}

std::uint64_t ring::read(std::span<std::byte> bytes) {
  const std::uint64_t at = state_->read.load(std::memory_order_relaxed);
  const std::uint64_t count = std::min<std::uint64_t>(bytes.size(), readable());
  if (count == 0) return 0;
  const std::uint64_t begin = at % capacity_, first = std::min(count, capacity_ - begin);
  std::memcpy(bytes.data(), bytes_ + begin, first);
  std::memcpy(bytes.data() + first, bytes_, count - first);
  // Sequentially consistent with the writer's store to `writer_waits` and its last load of `read`: either the writer
  // sees the new room, or the reader sees that the writer waits.
  state_->read.store(at + count, std::memory_order_seq_cst);
  return count;
}

bool ring::wait_for_room(std::uint64_t size_bytes) {
  state_->writer_waits.store(1);
  const std::uint64_t written = state_->written.load(std::memory_order_relaxed);
  return capacity_ - (written - state_->read.load(std::memory_order_seq_cst)) < size_bytes;
}

void ring::answer(lent_answer given) {
  const std::uint64_t index = state_->answered.load(std::memory_order_relaxed);
  state_->answers[index % most_lent].store(given.number << 1 | (given.is_taken ? 1 : 0), std::memory_order_relaxed);
  state_->answered.store(index + 1, std::memory_order_release);
}

lent_answer ring::answer_at(std::uint64_t index) const {
  const std::uint64_t word = state_->answers[index % most_lent].load(std::memory_order_relaxed);
  return {word >> 1, (word & 1) != 0};
}

}  // namespace shardmesh::shared_memory
