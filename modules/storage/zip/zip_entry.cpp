// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>
module shardmesh.storage;

import :zip_entry;
import :zip_error;
import :zip_fields;

namespace shardmesh::zip_reading {
using namespace zip_fields;

namespace {

constexpr std::int64_t piece_bytes = 1 << 20;
constexpr std::uint64_t dos_folder = 0x10;  // in the external attributes

}  // namespace

result<std::span<const std::byte>> directory_window::look(std::size_t count) {
  const auto begin = static_cast<std::size_t>(at_ - begin_);
  if (begin <= piece_.size() && count <= piece_.size() - begin)
    return std::span<const std::byte>(piece_).subspan(begin, count);
  begin_ = at_;
  piece_.resize(static_cast<std::size_t>(std::min(left(), std::max(piece_bytes, static_cast<std::int64_t>(count)))));
  SHARDMESH_TRY(source_.read(begin_, piece_));
  return std::span<const std::byte>(piece_).first(count);
}

result<zip_record> read_entry(const byte_source& source, directory_window& directory, std::uint64_t directory_offset) {
  constexpr auto fixed = static_cast<std::size_t>(central_bytes);
  if (directory.left() < central_bytes) return bad(source, "the directory has fewer records than it says");
  SHARDMESH_TRY(auto entry, directory.look(fixed));
  if (u32(entry, 0) != central_signature) return bad(source, "the directory has fewer records than it says");
  const std::size_t name_bytes = u16(entry, 28), extra_bytes = u16(entry, 30), comment_bytes = u16(entry, 32);
  if (static_cast<std::size_t>(directory.left() - central_bytes) < name_bytes + extra_bytes + comment_bytes)
    return bad(source, "a directory entry is cut off");
  SHARDMESH_TRY(entry, directory.look(fixed + name_bytes + extra_bytes));
  zip_record record;
  record.name.assign(reinterpret_cast<const char*>(entry.data()) + central_bytes, name_bytes);
  record.flags = static_cast<std::uint16_t>(u16(entry, 8));
  record.method = static_cast<std::uint16_t>(u16(entry, 10));
  record.crc32 = static_cast<std::uint32_t>(u32(entry, 16));
  const bool is_folder = (u32(entry, 38) & dos_folder) != 0 || record.name.ends_with('/');
  const auto numbers = widened({u32(entry, 24), u32(entry, 20), u32(entry, 42), u16(entry, 34)},
                               entry.subspan(fixed + name_bytes, extra_bytes));
  directory.skip(fixed + name_bytes + extra_bytes + comment_bytes);
  if (record.name.empty() || record.name.find('\0') != std::string::npos)
    return bad(source, fmt::format("a record's name, \"{}\", is empty or holds a NUL", record.name));
  if ((record.flags & 0x2041) != 0) return bad(source, fmt::format("record \"{}\" is encrypted", record.name));
  if (!numbers)
    return bad(source, fmt::format("the extra fields of record \"{}\" are cut off, or a ZIP64 field does not fit the "
                                   "record's numbers",
                                   record.name));
  const auto [size, compressed, offset, disk] = *numbers;
  if (disk != 0) return several_disks(source, fmt::format("record \"{}\" begins on disk {}", record.name, disk));
  const std::uint64_t header = static_cast<std::uint64_t>(local_bytes) + name_bytes;
  if (offset > directory_offset || header > directory_offset - offset ||
      compressed > directory_offset - offset - header || size > static_cast<std::uint64_t>(INT64_MAX))
    return bad(source, fmt::format("record \"{}\" lies outside of the archive", record.name));
  if (record.method == 0 && size != compressed)
    return bad(source, fmt::format("stored record \"{}\" has two different sizes", record.name));
  if (is_folder && size != 0)  // PyTorch's reader leaves its buffer as it was
    return bad(source, fmt::format("record \"{}\" is marked as a folder, and has bytes", record.name));
  record.compressed_bytes = static_cast<std::int64_t>(compressed);
  record.size_bytes = static_cast<std::int64_t>(size);
  record.header_offset = static_cast<std::int64_t>(offset);
  return record;
}

}  // namespace shardmesh::zip_reading
