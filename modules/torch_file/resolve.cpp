// SPDX-License-Identifier: Apache-2.0
// From the bytes of a storage to those of a tensor: row-major, little-endian, conjugation and negation applied.
module;
#include <fmt/format.h>
#include <try.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>
module shardmesh.torch_file;

import shardmesh.kernels;

namespace shardmesh {

result<std::vector<std::byte>> resolved_bytes(const torch_tensor& tensor, std::span<const std::byte> storage_bytes,
                                              std::endian byte_order, std::int64_t limit_bytes) {
  const auto count = checked_volume(tensor.sizes);
  const auto bytes = count ? size_bytes(tensor.type, *count) : std::nullopt;
  if (!bytes) return fail(errc::overflow, "a tensor's size does not fit: " + to_string(tensor.sizes));
  if (*bytes > limit_bytes)
    return fail(errc::invalid_argument, "a tensor is too large")
        .with_values(fmt::format("at most {} bytes", limit_bytes), fmt::format("{}", *bytes));
  std::vector<std::byte> out(static_cast<std::size_t>(*bytes));
  if (out.empty()) return out;
  std::int64_t last = tensor.storage_offset;
  for (std::size_t d = 0; d < tensor.sizes.rank(); ++d) last += (tensor.sizes[d] - 1) * tensor.strides[d];
  if ((last + 1) * item_bytes(tensor.type) > static_cast<std::int64_t>(storage_bytes.size()))
    return fail(errc::out_of_bounds, "a tensor leaves its storage");
  const tensor_view made{out.data(), tensor.type, {}, tensor.sizes, contiguous_strides(tensor.sizes)};
  const std::byte* const first = storage_bytes.data() + tensor.storage_offset * item_bytes(tensor.type);
  SHARDMESH_CHECK(copy(made, {first, tensor.type, {}, tensor.sizes, tensor.strides}));
  if (byte_order == std::endian::big) SHARDMESH_CHECK(byte_swap(made));
  if (tensor.conj) SHARDMESH_CHECK(conjugate(made));
  if (tensor.neg) SHARDMESH_CHECK(negate(made));
  return out;
}

result<std::vector<std::byte>> read_storage(const byte_source& source, const torch_storage& storage,
                                            std::int64_t limit_bytes, bool check_crc) {
  if (storage.size_bytes > limit_bytes)
    return fail(errc::invalid_argument, fmt::format("storage \"{}\" is too large", escaped(storage.key)))
        .with_file(source.name())
        .with_values(fmt::format("at most {} bytes", limit_bytes), fmt::format("{}", storage.size_bytes));
  std::vector<std::byte> bytes(static_cast<std::size_t>(storage.stored_bytes));
  SHARDMESH_CHECK(source.read(storage.offset, bytes));
  if (storage.method == 8) {
    auto inflated = inflate(bytes, storage.size_bytes);
    if (!inflated) return std::move(inflated).error().with_file(source.name());
    bytes = *std::move(inflated);
  }
  if (check_crc && storage.crc32 != 0 && crc32_of(bytes) != storage.crc32)
    return fail(errc::checksum_mismatch,
                fmt::format("storage \"{}\" is damaged: its CRC-32 differs", escaped(storage.key)))
        .with_file(source.name())
        .with_values(fmt::format("{:08x}", storage.crc32), fmt::format("{:08x}", crc32_of(bytes)));
  return bytes;
}

result<std::vector<std::byte>> read_tensor(const byte_source& source, const torch_item& item, std::size_t tensor,
                                           std::int64_t limit_bytes, bool check_crc) {
  const torch_tensor& view = item.tensors()[tensor];
  SHARDMESH_TRY(const auto bytes, read_storage(source, item.storages()[view.storage], limit_bytes, check_crc));
  return resolved_bytes(view, bytes, item.byte_order(), limit_bytes);
}

}  // namespace shardmesh
