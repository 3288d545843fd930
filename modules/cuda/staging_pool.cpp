// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>
module shardmesh.cuda;

import :staging_pool;

namespace shardmesh::cuda {
namespace {

constexpr std::int64_t smallest = 64 << 10;

}  // namespace

staging_pool::~staging_pool() {
  for (const auto& [size, buffers] : kept_)
    for (std::byte* const one : buffers) static_cast<void>(cuda_.call().free_host(one));
}

result<device_buffer> staging_pool::take(std::int64_t size_bytes, device where) {
  if (size_bytes <= 0) return device_buffer();
  // A larger buffer is never kept, so rounding its size up would only waste memory.
  const std::int64_t size =
      size_bytes > keep_bytes_
          ? size_bytes
          : static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(std::max(size_bytes, smallest))));
  std::byte* memory = nullptr;
  {
    const std::scoped_lock locked(lock_);
    if (const auto found = kept_.find(size); found != kept_.end() && !found->second.empty()) {
      memory = found->second.back();
      found->second.pop_back();
      kept_bytes_ -= size;
    }
  }
  if (memory == nullptr) {
    const current_device at(cuda_, where);
    SHARDMESH_TRY(at.outcome());
    void* pinned = nullptr;
    SHARDMESH_TRY(cuda_.check(cuda_.call().host_alloc(&pinned, static_cast<std::size_t>(size), host_alloc_portable),
                              "pinning " + human_bytes(size) + " of host memory (cudaHostAlloc)", where));
    memory = static_cast<std::byte*>(pinned);
  }
  return device_buffer(memory, size_bytes, device{},
                       std::shared_ptr<void>(memory, [pool = shared_from_this(), size](void* done) {
                         pool->give_back(static_cast<std::byte*>(done), size);
                       }));
}

void staging_pool::give_back(std::byte* memory, std::int64_t size_bytes) {
  {
    const std::scoped_lock locked(lock_);
    if (kept_bytes_ + size_bytes <= keep_bytes_) {
      kept_[size_bytes].push_back(memory);
      kept_bytes_ += size_bytes;
      return;
    }
  }
  static_cast<void>(cuda_.call().free_host(memory));
}

}  // namespace shardmesh::cuda
