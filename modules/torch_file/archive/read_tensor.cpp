// SPDX-License-Identifier: Apache-2.0
// Reads the bytes of a storage, and of a tensor in it. Strides, byte order, and lazy bits are resolved in
// checkpoint_core's stored_tensor.
module;
#include <fmt/core.h>
#include <restore_hint.hpp>
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>
module shardmesh.torch_file;

namespace shardmesh::torch_file {

result<std::vector<std::byte>> read_storage(const byte_source& source, const torch_file::storage& storage,
                                            std::int64_t limit_bytes, bool check_crc) {
  if (storage.size_bytes > limit_bytes)
    return fail(errc::bad_format, fmt::format("storage \"{}\" is too large", escaped(storage.key)))
        .with_file(source.name())
        .with_values(fmt::format("at most {} bytes", limit_bytes), fmt::format("{}", storage.size_bytes));
  SHARDMESH_TRY(std::vector<std::byte> bytes, read_range(source, storage.offset, storage.stored_bytes, limit_bytes));
  if (storage.method == 8) {
    auto inflated = inflate(bytes, storage.size_bytes);
    if (!inflated) return std::move(inflated).error().with_file(source.name());
    bytes = *std::move(inflated);
  }
  if (check_crc && storage.crc32 != 0 && crc32_of(bytes) != storage.crc32)
    return fail(errc::checksum_mismatch,
                fmt::format("storage \"{}\" is damaged: its CRC-32 differs", escaped(storage.key)))
        .with_file(source.name())
        .with_values(fmt::format("{:08x}", storage.crc32), fmt::format("{:08x}", crc32_of(bytes)))
        .with_hint(detail::restore_hint);
  return bytes;
}

result<std::vector<std::byte>> read_tensor(const byte_source& source, const torch_file::item& item, std::size_t tensor,
                                           std::int64_t limit_bytes, bool check_crc) {
  stored_tensor stored = stored_form(item, tensor);
  const auto count = checked_volume(stored.sizes);
  const auto bytes = count ? size_bytes(stored.type, *count) : std::nullopt;
  if (!bytes) return fail(errc::overflow, "the size of a tensor does not fit in 64 bits: " + to_string(stored.sizes));
  if (*bytes > limit_bytes)
    return fail(errc::bad_format, "a tensor is too large")
        .with_file(source.name())
        .with_values(fmt::format("at most {} bytes", limit_bytes), fmt::format("{}", *bytes));
  const torch_file::storage& storage = item.storages()[item.tensors()[tensor].storage];
  SHARDMESH_TRY(const auto storage_bytes, read_storage(source, storage, limit_bytes, check_crc));
  stored.begin = 0;
  std::vector<std::byte> out(static_cast<std::size_t>(*bytes));
  const tensor_view to{out.data(), stored.type, {}, stored.sizes, contiguous_strides(stored.sizes)};
  SHARDMESH_TRY(read_box(memory_source(storage_bytes, source.name()), stored, box::whole(stored.sizes), to));
  return out;
}

}  // namespace shardmesh::torch_file
