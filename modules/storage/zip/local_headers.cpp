// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.storage;

import :local_headers;
import :zip_error;
import :zip_fields;

namespace shardmesh::zip_reading {
using namespace zip_fields;

namespace {

/// Sets each record's limit to the beginning of the next, and checks that its header, name, and data fit before it.
/// Returns the records' indices in the order of the source.
result<std::vector<std::size_t>> check_extents(const byte_source& source, std::vector<zip_record>& records,
                                               std::int64_t directory_offset) {
  std::vector<std::size_t> order(records.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(),
            [&records](std::size_t a, std::size_t b) { return records[a].header_offset < records[b].header_offset; });
  for (std::size_t i = 0; i < order.size(); ++i) {
    zip_record& record = records[order[i]];
    record.limit = i + 1 < order.size() ? records[order[i + 1]].header_offset : directory_offset;
    const std::int64_t least = local_bytes + static_cast<std::int64_t>(record.name.size()) + record.compressed_bytes;
    if (record.limit - record.header_offset < least)
      return bad(source, fmt::format("record \"{}\" overlaps the next", record.name));
  }
  return order;
}

/// Reads local headers. One read serves the headers of adjacent small records: a file of many small tensors has many of
/// them.
class header_window {
 public:
  header_window(const byte_source& source, std::span<const zip_record> records, std::span<const std::size_t> order)
      : source_(source), run_ends_(records.size()) {
    for (std::size_t i = order.size(); i-- > 0;) {
      const zip_record& record = records[order[i]];
      if (record.limit - record.header_offset > small_record) continue;
      const std::int64_t next_end = i + 1 < order.size() ? run_ends_[order[i + 1]] : 0;
      run_ends_[order[i]] = std::max(record.limit, next_end);
    }
  }

  /// Returns the first `count` bytes of a record, which must lie before its limit; valid until the next call.
  result<std::span<const std::byte>> look(std::size_t index, const zip_record& record, std::int64_t count) {
    const std::int64_t at = record.header_offset - begin_;
    if (at >= 0 && at <= std::ssize(bytes_) - count)
      return std::span<const std::byte>(bytes_).subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(count));
    begin_ = record.header_offset;
    const std::int64_t run = std::min(run_ends_[index] - begin_, most_bytes);
    bytes_.resize(static_cast<std::size_t>(std::max(run, count)));
    if (auto done = source_.read(begin_, bytes_); !done) return bytes_.clear(), std::move(done).error();
    return std::span<const std::byte>(bytes_).first(static_cast<std::size_t>(count));
  }

 private:
  static constexpr std::int64_t small_record = 4096, most_bytes = 1 << 16;
  const byte_source& source_;
  std::vector<std::int64_t> run_ends_;  // per small record: end of the small records from it on; 0 for others
  std::int64_t begin_ = 0;
  std::vector<std::byte> bytes_;
};

// Compares two sets of flags. Bit 3 (sizes follow the data) and bits 1 and 2 (effort) may differ: they change nothing.
bool flags_agree(std::uint64_t local, std::uint64_t central) {
  return ((local ^ central) & ~std::uint64_t{0x000e}) == 0;
}

// Compares the CRC-32 and sizes of a local header with the directory. They may be 0 when they follow the data (PyTorch
// always leaves them 0), or saturated when a ZIP64 field has them.
bool sizes_agree(std::span<const std::byte> header, const zip_record& record) {
  const auto agrees = [](std::uint64_t local, std::uint64_t value) {
    return local == 0 || local == saturated32 || local == value;
  };
  return (u32(header, 14) == 0 || u32(header, 14) == record.crc32) &&
         agrees(u32(header, 18), static_cast<std::uint64_t>(record.compressed_bytes)) &&
         agrees(u32(header, 22), static_cast<std::uint64_t>(record.size_bytes));
}

/// Compares a record's local header with the directory, and sets `offset` and `beginning`. Takes one read when the
/// header's extra field (with which PyTorch aligns storages) is not unusually long.
result<void> read_local_header(const byte_source& source, header_window& headers, std::size_t index,
                               zip_record& record) {
  constexpr std::int64_t usual_extra = 128;
  const auto contradiction = [&] {
    return bad(source, fmt::format("the local header of record \"{}\" does not match the directory", record.name));
  };
  const std::int64_t fixed = local_bytes + static_cast<std::int64_t>(record.name.size());
  SHARDMESH_TRY(const std::span<const std::byte> header,
                headers.look(index, record, std::min(fixed + usual_extra + 2, record.limit - record.header_offset)));
  const auto name_bytes = static_cast<std::int64_t>(u16(header, 26)),
             extra_bytes = static_cast<std::int64_t>(u16(header, 28));
  const std::string_view name(reinterpret_cast<const char*>(header.data()) + local_bytes, record.name.size());
  if (u32(header, 0) != local_signature || name_bytes != static_cast<std::int64_t>(record.name.size()) ||
      name != record.name || u16(header, 8) != record.method || !flags_agree(u16(header, 6), record.flags) ||
      !sizes_agree(header, record))
    return contradiction();
  const bool is_wide = has_saturated_sizes(header);
  const std::int64_t begin = record.header_offset + fixed + extra_bytes;
  if (begin > record.limit || record.compressed_bytes > record.limit - begin)
    return bad(source, fmt::format("record \"{}\" overlaps the next", record.name));
  const auto first =
      std::span(record.beginning).first(static_cast<std::size_t>(std::min<std::int64_t>(record.compressed_bytes, 2)));
  if (extra_bytes <= usual_extra && fixed + extra_bytes + std::ssize(first) <= std::ssize(header))
    std::copy_n(header.begin() + fixed + extra_bytes, first.size(), first.begin());
  else
    SHARDMESH_TRY(source.read(begin, first));
  if (is_wide) {  // the last use of the window, which may move to show the whole header
    SHARDMESH_TRY(const std::span<const std::byte> whole, headers.look(index, record, fixed + extra_bytes));
    const entry_numbers wanted{static_cast<std::uint64_t>(record.size_bytes),
                               static_cast<std::uint64_t>(record.compressed_bytes)};
    if (!saturated_sizes_agree(whole, whole.subspan(static_cast<std::size_t>(fixed)), wanted)) return contradiction();
  }
  record.offset = begin;
  return {};
}

}  // namespace

result<void> read_local_headers(const byte_source& source, std::vector<zip_record>& records,
                                std::int64_t directory_offset, std::vector<error>* contradictions) {
  SHARDMESH_TRY(const std::vector<std::size_t> order, check_extents(source, records, directory_offset));
  header_window headers(source, records, order);
  for (std::size_t i = 0; i < records.size(); ++i) {
    auto done = read_local_header(source, headers, i, records[i]);
    if (done) continue;
    if (contradictions == nullptr || done.error().code != errc::bad_format) return std::move(done).error();
    contradictions->push_back(std::move(done).error());
  }
  return {};
}

}  // namespace shardmesh::zip_reading
