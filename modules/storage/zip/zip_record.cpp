// SPDX-License-Identifier: Apache-2.0
// Reads the bytes of single records, and inflates them.
module;
#include <fmt/format.h>
#include <zlib.h>
#include <restore_hint.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.storage;

import :zip_error;
import :zip_fields;

namespace shardmesh {
using namespace zip_fields;
using namespace zip_reading;

bool looks_like_zip(const byte_source& source) {
  std::array<std::byte, 4> start;
  return source.size_bytes() >= 4 && source.read(0, start) && u32(start, 0) == local_signature;
}

result<std::vector<std::byte>> inflate(std::span<const std::byte> compressed, std::int64_t size_bytes) {
  // Deflate expands at most 1032 times: a larger claim is false, and no memory is allocated for it.
  const auto most = checked_multiply(static_cast<std::int64_t>(compressed.size()) + 1, 1032);
  if (size_bytes < 0 || !most || size_bytes > *most)
    return fail(errc::bad_format, "deflated data cannot have the stated size");
  std::vector<std::byte> out(static_cast<std::size_t>(size_bytes));
  z_stream stream{};
  if (inflateInit2(&stream, -15) != Z_OK) throw std::bad_alloc();
  std::size_t in_at = 0, out_at = 0;
  int status = Z_OK;
  std::byte beyond{};  // zlib needs room for a byte to notice surplus data
  while (status == Z_OK) {
    const std::size_t in_now = std::min<std::size_t>(compressed.size() - in_at, 1U << 30);
    const std::size_t out_now = std::min<std::size_t>(out.size() - out_at, 1U << 30);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(compressed.data() + in_at));
    stream.avail_in = static_cast<uInt>(in_now);
    stream.next_out = reinterpret_cast<Bytef*>(out_now > 0 ? out.data() + out_at : &beyond);
    stream.avail_out = static_cast<uInt>(out_now > 0 ? out_now : 1);
    status = ::inflate(&stream, Z_NO_FLUSH);
    in_at += in_now - stream.avail_in;
    if (out_now > 0)
      out_at += out_now - stream.avail_out;
    else if (stream.avail_out == 0)
      status = Z_DATA_ERROR;
  }
  inflateEnd(&stream);
  if (status == Z_MEM_ERROR) throw std::bad_alloc();  // the data is not damaged
  if (status != Z_STREAM_END || out_at != out.size() || in_at != compressed.size())
    return fail(errc::bad_format, "deflated data is damaged or does not have the stated size");
  return out;
}

result<std::vector<std::byte>> read_record(const byte_source& source, const zip_record& record,
                                           std::int64_t limit_bytes, bool check_crc) {
  if (record.method != 0 && record.method != 8)
    return fail(errc::unsupported,
                fmt::format("ZIP compression method {} of record \"{}\" is not supported", record.method, record.name))
        .with_file(source.name());
  if (record.size_bytes > limit_bytes)
    return fail(errc::bad_format, fmt::format("record \"{}\" is too large", record.name))
        .with_file(source.name())
        .with_values(fmt::format("at most {} bytes", limit_bytes), fmt::format("{}", record.size_bytes));
  if (record.offset < 0)
    return bad(source, fmt::format("the local header of record \"{}\" does not match the directory", record.name));
  SHARDMESH_TRY(std::vector<std::byte> bytes, read_range(source, record.offset, record.compressed_bytes, limit_bytes));
  if (record.method == 8) {
    auto inflated = inflate(bytes, record.size_bytes);
    if (!inflated) return std::move(inflated).error().with_file(source.name());
    bytes = *std::move(inflated);
  }
  if (check_crc && record.crc32 != 0 && crc32_of(bytes) != record.crc32)
    return fail(errc::checksum_mismatch, fmt::format("record \"{}\" is damaged: its CRC-32 differs", record.name))
        .with_file(source.name())
        .with_values(fmt::format("{:08x}", record.crc32), fmt::format("{:08x}", crc32_of(bytes)))
        .with_hint(detail::restore_hint);
  return bytes;
}

}  // namespace shardmesh
