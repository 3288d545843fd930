// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <plural.hpp>

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardmesh/try.hpp>
module shardmesh.sharding;

namespace shardmesh {
namespace {

constexpr auto storage_names = std::to_array<std::string_view>(
    {"strided", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc", "_mkldnn", "jagged"});
constexpr auto format_names =
    std::to_array<std::string_view>({"contiguous_format", "preserve_format", "channels_last", "channels_last_3d"});

}  // namespace

std::string_view to_string(tensor_storage storage) {
  return storage_names[static_cast<std::size_t>(storage)];
}
std::string_view to_string(memory_format format) {
  return format_names[static_cast<std::size_t>(format)];
}

std::string to_string(const tensor_properties& p) {
  return fmt::format("{}, {}, requires_grad {}, {}, pin_memory {}", name(p.type), to_string(p.storage), p.requires_grad,
                     to_string(p.format), p.pin_memory);
}

result<shard_metadata> shard_metadata::make(std::span<const std::int64_t> offsets, std::span<const std::int64_t> sizes,
                                            std::string_view placement) {
  if (offsets.size() != sizes.size())
    return fail(errc::shape_mismatch, "a shard needs as many offsets as sizes")
        .with_values(detail::counted(offsets.size(), "size"), fmt::format("{}", sizes.size()));
  if (sizes.size() > max_rank)
    return fail(errc::rank_too_large, "a shard has too many dimensions")
        .with_values(fmt::format("at most {}", max_rank), std::to_string(sizes.size()));
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (offsets[d] < 0)
      return fail(errc::invalid_argument,
                  fmt::format("a shard's offset is negative in dimension {}: {}", d, offsets[d]));
    if (sizes[d] < 0)
      return fail(errc::invalid_argument, fmt::format("a shard's size is negative in dimension {}: {}", d, sizes[d]));
    if (!checked_add(offsets[d], sizes[d]))
      return fail(errc::overflow, fmt::format("a shard's end does not fit in 64 bits in dimension {}: {} + {}", d,
                                              offsets[d], sizes[d]));
  }
  shard_metadata made{extents(offsets), extents(sizes), std::nullopt};
  if (placement.empty()) return made;
  SHARDMESH_TRY(made.placement, parse_remote_device(placement));
  return made;
}

std::string to_string(const shard_metadata& shard) {
  const std::string where = shard.offsets.rank() == shard.sizes.rank()
                                ? to_string(shard.where())
                                : fmt::format("offsets {}, sizes {}", to_string(shard.offsets), to_string(shard.sizes));
  return where + (shard.placement ? " on " + to_string(*shard.placement) : " on no device");
}

std::size_t hash_value(const shard_metadata& shard) {
  std::size_t hash = shard.sizes.rank();
  const auto mix = [&](std::size_t value) { hash = (hash ^ value) * 0x9e3779b97f4a7c15ULL + (hash >> 29); };
  for (const std::int64_t value : shard.offsets) mix(std::hash<std::int64_t>{}(value));
  for (const std::int64_t value : shard.sizes) mix(std::hash<std::int64_t>{}(value));
  if (!shard.placement) return hash;
  mix(std::hash<std::string>{}(shard.placement->worker));
  mix(static_cast<std::size_t>(shard.placement->rank.value_or(-1)));
  mix(static_cast<std::size_t>(shard.placement->where.type) << 16 |
      static_cast<std::uint16_t>(shard.placement->where.index));
  return hash;
}

std::string to_string(const sharded_tensor_metadata& metadata) {
  return fmt::format("{} {} in {} shard{}", to_string(metadata.size), name(metadata.properties.type),
                     metadata.shards.size(), metadata.shards.size() == 1 ? "" : "s");
}

}  // namespace shardmesh
