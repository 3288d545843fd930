// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <restore_hint.hpp>
#include <shardmesh/try.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>
module shardmesh.delta;

import shardmesh.core;
import shardmesh.digest;
import shardmesh.storage;
import :byte_fields;
import :file_header;

namespace shardmesh::delta {
namespace {

constexpr std::string_view magic = "SHMDELTA";
constexpr std::uint32_t version = 1;

}  // namespace

std::vector<std::byte> format_header(const file_header& header) {
  field_writer out;
  for (const char letter : magic) out.number(letter);
  out.number(version);
  out.number(static_cast<std::uint32_t>(header.block_bytes));
  out.number(header.description_offset);
  out.number(header.description_bytes);
  out.digest(header.description);
  out.digest(xxh3(out.bytes()));
  return out.take();
}

result<file_header> read_header(const byte_source& file) {
  std::array<std::byte, header_bytes> bytes{};
  if (file.size_bytes() < header_bytes)
    return fail(errc::bad_format, "the file is too short to be a delta")
        .with_values(fmt::format("at least {} bytes", header_bytes), fmt::format("{}", file.size_bytes()));
  SHARDMESH_TRY(file.read(0, bytes));
  if (std::memcmp(bytes.data(), magic.data(), magic.size()) != 0)
    return fail(errc::bad_format, "the file is not a delta").with_hint("pass a file that 'delta make' wrote");
  field_reader in(std::span<const std::byte>(bytes).subspan(magic.size()));
  const auto found_version = in.number<std::uint32_t>();
  if (found_version != version)
    return fail(errc::unsupported, "the delta has another version")
        .with_values(fmt::format("{}", version), fmt::format("{}", found_version))
        .with_hint("use the release of shardmesh that wrote the delta, or a newer one");
  file_header made;
  made.block_bytes = in.number<std::uint32_t>();
  made.description_offset = in.number<std::int64_t>();
  made.description_bytes = in.number<std::int64_t>();
  made.description = in.digest();
  const digest128 recorded = in.digest();
  const digest128 found = xxh3(std::span<const std::byte>(bytes).first(bytes.size() - digest_bytes));
  if (found != recorded)
    return fail(errc::checksum_mismatch, "the header of the delta is damaged")
        .with_values(to_hex(recorded), to_hex(found))
        .with_hint(detail::restore_hint);
  if (made.block_bytes < least_block_bytes || made.block_bytes > most_block_bytes)
    return fail(errc::bad_format, "the delta has blocks of an unknown size")
        .with_values(fmt::format("{} to {} bytes", least_block_bytes, most_block_bytes),
                     fmt::format("{}", made.block_bytes));
  const bool is_inside = made.description_offset >= header_bytes && made.description_offset <= file.size_bytes();
  if (!is_inside || made.description_bytes != file.size_bytes() - made.description_offset)
    return fail(errc::bad_format, "the delta was cut, or has more bytes than it describes")
        .with_values(fmt::format("{} bytes from {} on", made.description_bytes, made.description_offset),
                     fmt::format("{} bytes in all", file.size_bytes()));
  return made;
}

}  // namespace shardmesh::delta
