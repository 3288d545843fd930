// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <shardmesh/try.hpp>
module shardmesh.replicas;

import :memory_step;

namespace shardmesh {
namespace {

constexpr std::int64_t alignment = 64;

}  // namespace

std::int64_t bytes_in(std::span<const memory_step> steps) {
  std::int64_t sum = 0;
  for (const memory_step& step : steps) sum += static_cast<std::int64_t>(step.memory.bytes().size());
  return sum;
}

result<memory_step> allocate_step(std::span<const chunk_to_keep> chunks, std::int64_t held_bytes,
                                  std::int64_t most_bytes) {
  memory_step made;
  std::int64_t total = 0;
  for (const chunk_to_keep& one : chunks) {
    const auto end = checked_add(total, one.size_bytes);
    const auto next = end ? checked_add(*end, alignment - 1) : end;
    if (!next) return fail(errc::overflow, "the copies of this rank do not fit in 64 bits");
    made.copies.push_back({one.chunk, static_cast<std::size_t>(total), static_cast<std::size_t>(one.size_bytes)});
    total = *next / alignment * alignment;
  }
  const auto together = checked_add(total, held_bytes);
  if (!together || *together > most_bytes)
    return fail(errc::no_memory, "the copies of a step do not fit in the memory for replicas")
        .with_values(fmt::format("at most {} bytes", most_bytes),
                     fmt::format("{} bytes of this step and {} bytes of the one before", total, held_bytes))
        .with_hint("raise replicas_options::memory_bytes, or lower copies");
  SHARDMESH_TRY(made.memory, host_tensor::make(dtype::uint8, {total}));
  return made;
}

}  // namespace shardmesh
