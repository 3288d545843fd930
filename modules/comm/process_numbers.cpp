// SPDX-License-Identifier: Apache-2.0
// The numbers of communicators that keep none of their own.
module;
#include <atomic>
#include <cstdint>
module shardmesh.comm;

namespace shardmesh::detail {
namespace {

std::atomic<std::uint32_t> next_number{0};

}  // namespace

std::uint32_t next_process_number() {
  return next_number.fetch_add(1, std::memory_order_relaxed);
}

void skip_process_numbers_to(std::uint32_t number) {
  std::uint32_t known = next_number.load(std::memory_order_relaxed);
  while (known < number && !next_number.compare_exchange_weak(known, number, std::memory_order_relaxed)) {
  }
}

}  // namespace shardmesh::detail
