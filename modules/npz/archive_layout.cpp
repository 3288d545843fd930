// SPDX-License-Identifier: Apache-2.0
module;
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.npz;

import shardmesh.core;
import :archive_layout;

namespace shardmesh::npz {
namespace {

constexpr std::int64_t alignment = 64;  // of the data; NumPy pads an array's header to the same multiple
constexpr std::int64_t local_bytes = 30, extra_head_bytes = 4;
constexpr std::uint32_t saturated32 = 0xffffffff;
constexpr std::uint16_t saturated16 = 0xffff;
constexpr std::uint16_t is_utf8_flag = 0x0800;
constexpr std::uint16_t first_date = 0x0021;  // 1 January 1980: files of equal contents have equal bytes
constexpr std::uint16_t wide_field = 1, padding_field = 0x4246;
constexpr std::uint16_t wide_version = 45, plain_version = 20;

template <class Number>
void append(std::string& out, Number number) {
  for (std::size_t i = 0; i < sizeof number; ++i)
    out += static_cast<char>(static_cast<std::uint64_t>(number) >> (8 * i) & 0xFFU);
}

bool is_wide(std::int64_t number) {
  return number >= static_cast<std::int64_t>(saturated32);
}
std::uint32_t narrow(std::int64_t number) {
  return is_wide(number) ? saturated32 : static_cast<std::uint32_t>(number);
}

// The bytes of the ZIP64 field of a local header: both sizes.
std::int64_t wide_bytes(std::int64_t size_bytes) {
  return is_wide(size_bytes) ? extra_head_bytes + 16 : 0;
}

std::uint16_t flags_of(std::string_view name) {
  return std::all_of(name.begin(), name.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; })
             ? std::uint16_t{0}
             : is_utf8_flag;
}

// Appends the fields that a local header and a directory entry have in common, from the version to the name's length.
void append_common(std::string& out, const placed_record& record, std::uint32_t crc32, bool needs_wide) {
  append(out, needs_wide ? wide_version : plain_version);
  append(out, flags_of(record.name));
  append(out, std::uint16_t{0});  // stored
  append(out, std::uint16_t{0});  // midnight
  append(out, first_date);
  append(out, crc32);
  append(out, narrow(record.size_bytes));
  append(out, narrow(record.size_bytes));
  append(out, static_cast<std::uint16_t>(record.name.size()));
}

}  // namespace

result<void> archive_layout::add(std::string name, std::int64_t size_bytes) {
  placed_record record{std::move(name), size_bytes, end_, 0};
  const std::int64_t head =
      local_bytes + static_cast<std::int64_t>(record.name.size()) + wide_bytes(size_bytes) + extra_head_bytes;
  const auto padded = checked_add(record.begin, head + alignment - 1);
  const auto end = padded ? checked_add(*padded / alignment * alignment, size_bytes) : std::nullopt;
  if (!end) return fail(errc::overflow, "the arrays do not fit in one file");
  record.data_begin = *padded / alignment * alignment;
  end_ = *end;
  records_.push_back(std::move(record));
  return {};
}

std::string archive_layout::local_header(std::size_t record, std::uint32_t crc32) const {
  const placed_record& placed = records_[record];
  const std::int64_t wide = wide_bytes(placed.size_bytes);
  const std::int64_t extra =
      placed.data_begin - placed.begin - local_bytes - static_cast<std::int64_t>(placed.name.size());
  std::string out;
  append(out, std::uint32_t{0x04034b50});
  append_common(out, placed, crc32, wide > 0);
  append(out, static_cast<std::uint16_t>(extra));
  out += placed.name;
  if (wide > 0) {
    append(out, wide_field);
    append(out, std::uint16_t{16});
    append(out, static_cast<std::uint64_t>(placed.size_bytes));
    append(out, static_cast<std::uint64_t>(placed.size_bytes));
  }
  const std::int64_t padding = extra - wide - extra_head_bytes;
  append(out, padding_field);
  append(out, static_cast<std::uint16_t>(padding));
  out.append(static_cast<std::size_t>(padding), '\0');
  return out;
}

std::string archive_layout::directory(std::span<const std::uint32_t> crc32) const {
  std::string out;
  for (std::size_t i = 0; i < records_.size(); ++i) {
    const placed_record& record = records_[i];
    std::string wide;  // in the order of the fields that it replaces
    if (is_wide(record.size_bytes)) {
      append(wide, static_cast<std::uint64_t>(record.size_bytes));
      append(wide, static_cast<std::uint64_t>(record.size_bytes));
    }
    if (is_wide(record.begin)) append(wide, static_cast<std::uint64_t>(record.begin));
    const bool needs_wide = !wide.empty();
    append(out, std::uint32_t{0x02014b50});
    append(out, needs_wide ? wide_version : plain_version);  // of the writer
    append_common(out, record, crc32[i], needs_wide);
    append(out, static_cast<std::uint16_t>(needs_wide ? wide.size() + static_cast<std::size_t>(extra_head_bytes) : 0));
    append(out, std::uint16_t{0});  // comment
    append(out, std::uint16_t{0});  // disk
    append(out, std::uint16_t{0});  // internal attributes
    append(out, std::uint32_t{0});  // external attributes
    append(out, narrow(record.begin));
    out += record.name;
    if (!needs_wide) continue;
    append(out, wide_field);
    append(out, static_cast<std::uint16_t>(wide.size()));
    out += wide;
  }
  const auto length = static_cast<std::int64_t>(out.size());
  const auto count = static_cast<std::uint64_t>(records_.size());
  if (count >= saturated16 || is_wide(length) || is_wide(end_)) {
    append(out, std::uint32_t{0x06064b50});
    append(out, std::uint64_t{44});  // bytes of the rest of this record
    append(out, wide_version);
    append(out, wide_version);
    append(out, std::uint32_t{0});
    append(out, std::uint32_t{0});
    append(out, count);
    append(out, count);
    append(out, static_cast<std::uint64_t>(length));
    append(out, static_cast<std::uint64_t>(end_));
    append(out, std::uint32_t{0x07064b50});
    append(out, std::uint32_t{0});
    append(out, static_cast<std::uint64_t>(end_ + length));
    append(out, std::uint32_t{1});
  }
  append(out, std::uint32_t{0x06054b50});
  append(out, std::uint32_t{0});
  append(out, static_cast<std::uint16_t>(std::min<std::uint64_t>(count, saturated16)));
  append(out, static_cast<std::uint16_t>(std::min<std::uint64_t>(count, saturated16)));
  append(out, narrow(length));
  append(out, narrow(end_));
  append(out, std::uint16_t{0});  // comment
  return out;
}

}  // namespace shardmesh::npz
