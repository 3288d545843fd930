// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
module shardmesh.transfer;

import :scratch;

namespace shardmesh {

result<std::byte*> scratch::reserve(std::int64_t size_bytes) {
  if (size_bytes > capacity_) {
    memory_.reset();
    capacity_ = 0;
    memory_.reset(new (std::nothrow) std::byte[static_cast<std::size_t>(size_bytes)]);
    if (!memory_) return fail(errc::no_memory, fmt::format("cannot allocate {} for messages", human_bytes(size_bytes)));
    capacity_ = size_bytes;
  }
  return memory_.get();
}

}  // namespace shardmesh
