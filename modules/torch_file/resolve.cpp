// SPDX-License-Identifier: Apache-2.0
// From the bytes of a storage to those of a tensor: row-major, little-endian, conjugation and negation applied.
module;
#include <fmt/format.h>
#include <try.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <utility>
#include <vector>
module shardmesh.torch_file;

namespace shardmesh {
namespace {

/// Bytes of one number: half of a complex element.
std::size_t number_bytes(dtype type) {
  const auto whole = static_cast<std::size_t>(item_bytes(type));
  return kind(type) == dtype_kind::complex ? whole / 2 : whole;
}

/// Copies every element of the view, in row-major order.
void gather(const torch_tensor& tensor, const std::byte* storage, std::byte* out) {
  const std::int64_t item = item_bytes(tensor.type);
  const std::size_t rank = tensor.sizes.rank();
  const std::byte* from = storage + tensor.storage_offset * item;
  // The last dimensions that lie without gaps are one run.
  std::size_t outer = rank;
  std::int64_t run = 1;
  while (outer > 0 && (tensor.strides[outer - 1] == run || tensor.sizes[outer - 1] == 1)) run *= tensor.sizes[--outer];
  extents index = extents::filled(outer, 0);
  for (;;) {
    std::memcpy(out, from, static_cast<std::size_t>(run * item));
    out += run * item;
    std::size_t d = outer;
    for (; d > 0; --d) {
      from += tensor.strides[d - 1] * item;
      if (++index[d - 1] < tensor.sizes[d - 1]) break;
      from -= tensor.strides[d - 1] * item * tensor.sizes[d - 1];
      index[d - 1] = 0;
    }
    if (d == 0) return;
  }
}

/// Flips the sign of every `step`th number from `first` on. Little-endian bytes.
void flip_signs(std::span<std::byte> bytes, std::size_t width, std::size_t first, std::size_t step) {
  for (std::size_t at = first * width; at < bytes.size(); at += step * width) bytes[at + width - 1] ^= std::byte{0x80};
}

void negate(std::span<std::byte> bytes, dtype type) {
  const std::size_t width = number_bytes(type);
  if (type == dtype::float8_e4m3fnuz || type == dtype::float8_e5m2fnuz) {
    for (std::byte& b : bytes)
      if ((b & std::byte{0x7f}) != std::byte{0}) b ^= std::byte{0x80};  // these have no negative zero
    return;
  }
  if (kind(type) != dtype_kind::integer) return flip_signs(bytes, width, 0, 1);
  for (std::size_t at = 0; at < bytes.size(); at += width) {
    unsigned carry = 1;
    for (std::size_t i = 0; i < width; ++i) {
      carry += std::to_integer<unsigned>(~bytes[at + i]) & 0xff;
      bytes[at + i] = static_cast<std::byte>(carry);
      carry >>= 8;
    }
  }
}

}  // namespace

void swap_bytes(std::span<std::byte> bytes, dtype type) {
  const std::size_t width = number_bytes(type);
  if (width < 2) return;
  for (std::size_t at = 0; at + width <= bytes.size(); at += width) std::reverse(&bytes[at], &bytes[at] + width);
}

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
  gather(tensor, storage_bytes.data(), out.data());
  if (byte_order == std::endian::big) swap_bytes(out, tensor.type);
  if (tensor.conj && kind(tensor.type) == dtype_kind::complex) flip_signs(out, number_bytes(tensor.type), 1, 2);
  if (tensor.neg) negate(out, tensor.type);
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
