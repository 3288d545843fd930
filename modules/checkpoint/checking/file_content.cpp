// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <shardmesh/try.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import :file_content;

namespace shardmesh {
namespace {

using namespace std::string_view_literals;

struct mark {
  std::string_view bytes;  // at the beginning
  std::string_view kind;
  bool is_short = false;  // other data may begin in the same way
};

constexpr auto marks = std::to_array<mark>({
    {"\x1f\x8b\x08"sv, "gzip data"},
    {"BZh"sv, "bzip2 data"},
    {"\xfd\x37zXZ\x00"sv, "xz data"},
    {"\x28\xb5\x2f\xfd"sv, "zstd data"},
    {"\x04\x22\x4d\x18"sv, "lz4 data"},
    {"7z\xbc\xaf\x27\x1c"sv, "7z archive"},
    {"Rar!\x1a\x07"sv, "rar archive"},
    {"\x5d\x00\x00"sv, "lzma data", true},
    {"\x78\x01"sv, "zlib data", true},
    {"\x78\x5e"sv, "zlib data", true},
    {"\x78\x9c"sv, "zlib data", true},
    {"\x78\xda"sv, "zlib data", true},
});
constexpr std::string_view tar_mark = "ustar", tar_kind = "tar archive";
constexpr std::size_t tar_mark_at = 257;

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string_view packed_kind(std::string_view head, bool may_be_packed) {
  for (const mark& known : marks)
    if (head.starts_with(known.bytes) && (may_be_packed || !known.is_short)) return known.kind;
  return head.size() > tar_mark_at && head.substr(tar_mark_at).starts_with(tar_mark) ? tar_kind : std::string_view();
}

// Where the pickle of an array of objects begins. The header is a Python literal, which may write the type "O" in
// several ways, so anything that may be such a type counts. If the elements turn out not to be a pickle, no names are
// found.
std::optional<std::int64_t> pickle_of_array(const byte_source& source, std::string_view head) {
  constexpr std::string_view magic = "\x93NUMPY";
  constexpr std::int64_t longest = 1 << 20;
  if (!head.starts_with(magic) || head.size() < 12) return std::nullopt;
  const auto byte = [&](std::size_t i) { return static_cast<std::int64_t>(static_cast<unsigned char>(head[i])); };
  const bool is_short = byte(6) == 1;
  const std::int64_t at = is_short ? 10 : 12;
  const std::int64_t length =
      is_short ? byte(8) | byte(9) << 8 : byte(8) | byte(9) << 8 | byte(10) << 16 | byte(11) << 24;
  std::vector<std::byte> header(
      static_cast<std::size_t>(std::clamp<std::int64_t>(source.size_bytes() - at, 0, std::min(length, longest))));
  if (!source.read(at, header)) return std::nullopt;
  const std::string_view text = text_of(header);
  const bool may_be_objects = static_cast<std::int64_t>(header.size()) < length ||
                              text.find_first_of("O\\") != text.npos || text.find("object") != text.npos;
  return may_be_objects ? std::optional(at + length) : std::nullopt;
}

constexpr std::size_t prefix_bytes = 4096;

// Inflates the first bytes of raw deflate data; fewer where it ends or is damaged.
std::vector<std::byte> inflated_prefix(std::span<const std::byte> compressed) {
  std::vector<std::byte> out(prefix_bytes);
  z_stream stream{};
  if (inflateInit2(&stream, -15) != Z_OK) return {};
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(compressed.data()));
  stream.avail_in = static_cast<uInt>(compressed.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  static_cast<void>(::inflate(&stream, Z_SYNC_FLUSH));
  out.resize(out.size() - stream.avail_out);
  inflateEnd(&stream);
  return out;
}

}  // namespace

found_content content_of(const byte_source& source, bool may_be_packed) {
  std::array<std::byte, tar_mark_at + tar_mark.size()> bytes{};
  const auto length = static_cast<std::size_t>(std::min(source.size_bytes(), static_cast<std::int64_t>(bytes.size())));
  const auto head = std::span(bytes).first(length);
  if (length < 2 || !source.read(0, head)) return {};
  if (looks_like_zip(source)) return {content::zip, {}, 0};
  const bool begins_pickle = head[0] == std::byte{0x80} && head[1] <= std::byte{5};
  // A safetensors length such as 640 begins like a pickle, and a pickle can be made to look like a length: both are
  // tried.
  const bool begins_safetensors = length >= 9 && head[8] == std::byte{'{'};
  if (begins_pickle) return {begins_safetensors ? content::either : content::pickle, {}, 0};
  // Tested before safetensors, because the ninth byte of an array or of compressed data may be "{".
  if (const auto at = pickle_of_array(source, text_of(head))) return {content::array, {}, *at};
  const std::string_view packed = packed_kind(text_of(head), may_be_packed);
  if (!packed.empty()) return {content::packed, packed, 0};
  return {begins_safetensors ? content::safetensors : content::other, {}, 0};
}

bool is_packed_name(std::string_view name) {
  const auto is_kind = [&](std::string_view kind) {
    return name.size() == kind.size() + 2 && name.starts_with('<') && name.ends_with('>') &&
           name.substr(1, kind.size()) == kind;
  };
  return is_kind(tar_kind) || std::ranges::any_of(marks, [&](const mark& known) { return is_kind(known.kind); });
}

void record_content::hold(std::vector<std::byte> bytes, std::string name) {
  bytes_ = std::make_unique<std::vector<std::byte>>(std::move(bytes));
  source_ = std::make_unique<memory_source>(*bytes_, std::move(name));
}

result<record_content> record_content::open(const byte_source& source, const zip_record& record, bool may_be_pickle,
                                            read_budget& budget) {
  record_content opened;
  if (record.method == 0) {
    opened.source_ = std::make_unique<section_source>(source, record.offset, record.compressed_bytes);
    return opened;
  }
  const std::int64_t limit = budget.limits().description_bytes;
  if (record.method == 8) {
    const auto length = std::min(record.compressed_bytes, static_cast<std::int64_t>(prefix_bytes));
    SHARDMESH_TRY(const std::vector<std::byte> compressed, read_range(source, record.offset, length, limit));
    opened.hold(inflated_prefix(compressed), source.name());
    const content kind = content_of(*opened.source_, may_be_pickle).kind;
    const bool holds_pickles =
        kind == content::zip || kind == content::pickle || kind == content::either || kind == content::array;
    if (!holds_pickles && !may_be_pickle) return opened;
    const std::string place = fmt::format("{}:{}:{}:{}", source.name(), record.name, record.crc32, record.offset);
    const std::int64_t most = std::min(limit, budget.left_to_decode(place, record.compressed_bytes));
    const bool is_too_large = record.size_bytes > most || record.compressed_bytes > limit;
    // Weights may have the name of a pickle. Their first bytes have shown that they are not one.
    if (is_too_large && !holds_pickles) return opened;
    if (is_too_large)
      return beyond_limit(fmt::format("record \"{}\" is too large", escaped(record.name)), most)
          .with_file(source.name());
    SHARDMESH_TRY(budget.decode(place, record.compressed_bytes, record.size_bytes));
  }
  SHARDMESH_TRY(std::vector<std::byte> bytes, read_record(source, record, limit, false));
  opened.hold(std::move(bytes), source.name());
  return opened;
}

}  // namespace shardmesh
