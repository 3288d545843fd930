// SPDX-License-Identifier: Apache-2.0
// Reads ZIP archives: end records, central directory, local headers.
module;
#include <fmt/format.h>
#include <zlib.h>
#include <plural.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>
module shardmesh.storage;

import :zip_fields;

namespace shardmesh {
using namespace zip_fields;

namespace {

constexpr std::int64_t end_bytes = 22, locator_bytes = 20, end64_bytes = 56, local_bytes = 30, central_bytes = 46;
constexpr std::uint64_t local_signature = 0x04034b50, central_signature = 0x02014b50, end_signature = 0x06054b50,
                        end64_signature = 0x06064b50, locator_signature = 0x07064b50;

error bad(const byte_source& source, std::string message) {
  return fail(errc::bad_format, "malformed ZIP archive: " + std::move(message)).with_file(source.name());
}

/// The error for a part of an archive. Only the last part has the directory, and no reader here opens the others.
error several_disks(const byte_source& source, const std::string& why) {
  return bad(source, "it is not on a single disk: " + why)
      .with_hint("join the parts first: zip -s 0 PARTS.zip --out WHOLE.zip");
}

/// The position of the central directory, and its number of records.
struct extent {
  std::uint64_t offset = 0, length = 0, records = 0;
};

/// Finds the offset of the end record. A comment may follow it. A comment that holds another end record is refused,
/// because readers would disagree about the archive's contents.
result<std::int64_t> find_end(const byte_source& source) {
  const std::int64_t size = source.size_bytes();
  if (size < end_bytes) return bad(source, "it is too short");
  std::optional<std::int64_t> found;
  for (const std::int64_t window : {std::int64_t{4096}, std::int64_t{0xffff} + end_bytes}) {
    const std::int64_t length = std::min(window, size);
    std::vector<std::byte> tail(static_cast<std::size_t>(length));
    SHARDMESH_TRY(source.read(size - length, tail));
    for (std::size_t at = tail.size() - end_bytes + 1; at-- > 0;) {
      if (tail[at] != std::byte{'P'} || u32(tail, at) != end_signature) continue;
      if (u16(tail, at + 20) != tail.size() - at - end_bytes) continue;
      if (found) return bad(source, "it has two end records");
      found = size - length + static_cast<std::int64_t>(at);
    }
    if (found || length == size) break;
  }
  if (!found) return bad(source, "it has no end record (cut off?)");
  return *found;
}

/// The numbers of an end record that depend on how many disks hold the archive.
struct disk_numbers {
  std::uint64_t end_disk = 0, directory_disk = 0, records_here = 0, records = 0;
};

result<void> check_disks(const byte_source& source, const disk_numbers& numbers, std::string_view place) {
  if (numbers.end_disk != 0 || numbers.directory_disk != 0)
    return several_disks(source, fmt::format("the {} is on disk {}, and the directory on disk {}", place,
                                             numbers.end_disk, numbers.directory_disk));
  if (numbers.records_here != numbers.records)
    return several_disks(source, fmt::format("the {} has {} of {} on its disk", place, numbers.records_here,
                                             detail::counted(numbers.records, "record")));
  return {};
}

/// Reads the ZIP64 end record, which has to be at `expected_at`, directly before its locator: some readers go there,
/// others to the locator's offset, and they would see different directories.
result<extent> read_end64(const byte_source& source, std::span<const std::byte> locator, std::int64_t expected_at) {
  if (u32(locator, 4) != 0)
    return several_disks(source, fmt::format("the ZIP64 end record is on disk {}", u32(locator, 4)));
  if (u32(locator, 16) != 1)  // PyTorch's reader refuses 0 as well
    return several_disks(source, "the ZIP64 locator counts " + detail::counted(u32(locator, 16), "disk"));
  if (expected_at < 0 || u64(locator, 8) != static_cast<std::uint64_t>(expected_at))
    return bad(source, "the ZIP64 end record does not lie directly before its locator");
  std::array<std::byte, end64_bytes> end64;
  SHARDMESH_TRY(source.read(expected_at, end64));
  if (u32(end64, 0) != end64_signature || u64(end64, 4) != static_cast<std::uint64_t>(end64_bytes - 12))
    return bad(source, "the ZIP64 end record is damaged");
  SHARDMESH_TRY(
      check_disks(source, {u32(end64, 16), u32(end64, 20), u64(end64, 24), u64(end64, 32)}, "ZIP64 end record"));
  return extent{u64(end64, 48), u64(end64, 40), u64(end64, 32)};
}

result<extent> find_directory(const byte_source& source) {
  SHARDMESH_TRY(const std::int64_t end_at, find_end(source));
  std::array<std::byte, end_bytes> end;
  SHARDMESH_TRY(source.read(end_at, end));
  SHARDMESH_TRY(check_disks(source, {u16(end, 4), u16(end, 6), u16(end, 8), u16(end, 10)}, "end record"));
  extent found{u32(end, 16), u32(end, 12), u16(end, 10)};
  std::int64_t directory_end = end_at;

  std::array<std::byte, locator_bytes> locator{};
  if (end_at >= locator_bytes) SHARDMESH_TRY(source.read(end_at - locator_bytes, locator));
  if (u32(locator, 0) == locator_signature) {
    directory_end = end_at - locator_bytes - end64_bytes;
    SHARDMESH_TRY(const extent wide, read_end64(source, locator, directory_end));
    const auto agrees = [](std::uint64_t narrow, std::uint64_t value, std::uint64_t limit) {
      return narrow == value || narrow == limit;
    };
    if (!agrees(found.records, wide.records, saturated16) || !agrees(found.length, wide.length, saturated32) ||
        !agrees(found.offset, wide.offset, saturated32))
      return bad(source, "its two end records disagree");
    found = wide;
  }
  const auto limit = static_cast<std::uint64_t>(directory_end);
  if (found.offset > limit || found.length != limit - found.offset)
    return bad(source, "the directory does not lie directly before its end record");
  if (found.records > found.length / central_bytes)
    return bad(source, fmt::format("{} not fit into a directory of {}",
                                   detail::counted(found.records, "record does", "records do"),
                                   detail::counted(found.length, "byte")));
  return found;
}

/// Reads the directory in pieces: its length is only a claim, and a sparse file can make it as long as the disk.
class directory_window {
 public:
  directory_window(const byte_source& source, const extent& where)
      : source_(source),
        at_(static_cast<std::int64_t>(where.offset)),
        end_(at_ + static_cast<std::int64_t>(where.length)) {}

  std::int64_t left() const { return end_ - at_; }
  /// Returns the next `count` bytes, which must exist; valid until the next call.
  result<std::span<const std::byte>> look(std::size_t count) {
    const auto begin = static_cast<std::size_t>(at_ - begin_);
    if (begin <= piece_.size() && count <= piece_.size() - begin)
      return std::span<const std::byte>(piece_).subspan(begin, count);
    begin_ = at_;
    piece_.resize(static_cast<std::size_t>(std::min(left(), std::max(piece_bytes, static_cast<std::int64_t>(count)))));
    SHARDMESH_TRY(source_.read(begin_, piece_));
    return std::span<const std::byte>(piece_).first(count);
  }
  /// Skips bytes, also those that were never read.
  void skip(std::size_t count) { at_ += static_cast<std::int64_t>(count); }

 private:
  static constexpr std::int64_t piece_bytes = 1 << 20;
  const byte_source& source_;
  std::int64_t at_, end_, begin_ = at_;
  std::vector<std::byte> piece_;
};

/// Reads the next entry of the directory.
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
  record.compressed_bytes = static_cast<std::int64_t>(compressed);
  record.size_bytes = static_cast<std::int64_t>(size);
  record.header_offset = static_cast<std::int64_t>(offset);
  return record;
}

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

namespace {

// A directory with at most this many records is searched without an index, which would take longer to make. An archive
// of one tensor has seven records, and a folder has such an archive for each chunk.
constexpr std::uint64_t few_records = 32;

char lower_case(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 32) : c;
}
std::string lower_case(std::string name) {
  for (char& c : name) c = lower_case(c);
  return name;
}
// NumPy looks its arrays up with regard to case, and PyTorch has no such records.
bool is_numpy_array(std::string_view name) {
  return name.ends_with(".npy");
}
bool are_alike_but_for_case(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, {}, [](char c) { return lower_case(c); }, [](char c) { return lower_case(c); });
}

}  // namespace

result<windowed_source> windowed_source::open(const byte_source& source, std::int64_t head_bytes,
                                              std::int64_t tail_bytes) {
  windowed_source made(source);
  const std::int64_t size = source.size_bytes();
  const bool whole = size <= head_bytes + tail_bytes;
  made.head_.resize(static_cast<std::size_t>(whole ? size : head_bytes));
  SHARDMESH_TRY(source.read(0, made.head_));
  if (whole) return made;
  made.tail_.resize(static_cast<std::size_t>(tail_bytes));
  SHARDMESH_TRY(source.read(size - tail_bytes, made.tail_));
  return made;
}

result<void> windowed_source::read(std::int64_t offset, std::span<std::byte> out) const {
  const auto served = [&](const std::vector<std::byte>& window, std::int64_t begin) {
    const auto length = static_cast<std::int64_t>(window.size()), wanted = static_cast<std::int64_t>(out.size());
    if (offset < begin || offset - begin > length || wanted > length - (offset - begin)) return false;
    std::copy_n(window.begin() + (offset - begin), wanted, out.begin());
    return true;
  };
  if (served(head_, 0) || served(tail_, size_bytes() - static_cast<std::int64_t>(tail_.size()))) return {};
  return source_->read(offset, out);
}

result<zip_directory> zip_directory::read(const byte_source& source, std::vector<error>* contradictions) {
  SHARDMESH_TRY(const extent where, find_directory(source));
  directory_window window(source, where);
  zip_directory directory;
  std::unordered_set<std::string> folded;
  const bool is_short = where.records <= few_records;
  if (is_short) directory.records_.reserve(static_cast<std::size_t>(where.records));
  for (std::uint64_t i = 0; i < where.records; ++i) {
    SHARDMESH_TRY(zip_record record, read_entry(source, window, where.offset));
    const bool is_known = is_short ? directory.find(record.name) != nullptr
                                   : !directory.by_name_.emplace(record.name, directory.records_.size()).second;
    if (is_known) return bad(source, fmt::format("two records are named \"{}\"", record.name));
    // PyTorch's reader looks names up without regard to case, others with: they would see different records.
    const auto is_alike = [&](const zip_record& other) {
      return !is_numpy_array(other.name) && are_alike_but_for_case(other.name, record.name);
    };
    const bool is_folded = !is_numpy_array(record.name) && (is_short ? std::ranges::any_of(directory.records_, is_alike)
                                                                     : !folded.insert(lower_case(record.name)).second);
    if (is_folded) return bad(source, fmt::format("two records are named \"{}\" apart from case", record.name));
    directory.records_.push_back(std::move(record));
  }
  if (window.left() != 0) return bad(source, "the directory has more records than it says");
  SHARDMESH_TRY(const std::vector<std::size_t> order,
                check_extents(source, directory.records_, static_cast<std::int64_t>(where.offset)));
  header_window headers(source, directory.records_, order);
  for (std::size_t i = 0; i < directory.records_.size(); ++i) {
    auto done = read_local_header(source, headers, i, directory.records_[i]);
    if (done) continue;
    if (contradictions == nullptr || done.error().code != errc::bad_format) return std::move(done).error();
    contradictions->push_back(std::move(done).error());
  }
  return directory;
}

const zip_record* zip_directory::find(std::string_view name) const {
  if (by_name_.empty()) {
    const auto found = std::ranges::find(records_, name, &zip_record::name);
    return found == records_.end() ? nullptr : &*found;
  }
  const auto found = by_name_.find(std::string(name));
  return found == by_name_.end() ? nullptr : &records_[found->second];
}

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
  if (inflateInit2(&stream, -15) != Z_OK) return fail(errc::io, "cannot start zlib");
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
    return fail(errc::invalid_argument, fmt::format("record \"{}\" is too large", record.name))
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
        .with_values(fmt::format("{:08x}", record.crc32), fmt::format("{:08x}", crc32_of(bytes)));
  return bytes;
}

}  // namespace shardmesh
