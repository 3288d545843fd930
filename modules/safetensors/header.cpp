// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <plural.hpp>
#include <position_table.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>
module shardmesh.safetensors;

import :any_header;
import :entry_check;
import :usual_header;

namespace shardmesh::safetensors {
namespace {

result<void> check_names(const std::vector<entry>& entries) {
  const auto hash_of = [&](std::size_t i) { return std::hash<std::string_view>()(entries[i].name); };
  detail::position_table met(entries.size());
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const std::uint64_t hash = hash_of(i);
    if (met.find(hash, [&](std::size_t other) { return entries[other].name == entries[i].name; }) != met.none)
      return fail(errc::duplicate_key, "occurs twice").with_key(entries[i].name);
    met.insert(hash, i, hash_of);
  }
  return {};
}

result<void> check_tiling(const safetensors::header& header, std::int64_t file_bytes) {
  std::int64_t expected = header.data_begin;
  std::string_view before = "the header";
  for (const safetensors::entry& entry : header.entries) {
    if (entry.begin != expected)
      return fail(errc::bad_format,
                  fmt::format("its data {} {}", entry.begin < expected ? "overlaps" : "leaves a gap after", before))
          .with_key(entry.name)
          .with_values(fmt::format("offset {}", expected - header.data_begin),
                       fmt::format("{}", entry.begin - header.data_begin));
    expected = entry.end;
    before = entry.name;
  }
  if (expected == file_bytes) return {};
  return fail(errc::bad_format,
              expected > file_bytes ? "the file is shorter than its tensors" : "the file is longer than its tensors")
      .with_key(expected > file_bytes && !header.entries.empty() ? header.entries.back().name : std::string())
      .with_values(detail::counted(expected, "byte"), fmt::format("{}", file_bytes));
}

// Returns whether the file is the text that Git LFS leaves in place of a file that it has not fetched.
result<bool> is_lfs_pointer(const byte_source& source) {
  constexpr std::string_view beginning = "version https://git-lfs";
  std::array<std::byte, beginning.size()> first{};
  if (source.size_bytes() < static_cast<std::int64_t>(first.size())) return false;
  SHARDMESH_TRY(source.read(0, first));
  return std::string_view(reinterpret_cast<const char*>(first.data()), first.size()) == beginning;
}

result<std::int64_t> header_length(const byte_source& source) {
  if (source.size_bytes() < 8)
    return fail(errc::bad_format, "is too short for a safetensors file")
        .with_values("8 bytes", fmt::format("{}", source.size_bytes()));
  std::array<std::byte, 8> bytes{};
  SHARDMESH_TRY(source.read(0, bytes));
  std::uint64_t length = 0;
  for (std::size_t i = 8; i-- > 0;) length = length << 8 | std::to_integer<std::uint64_t>(bytes[i]);
  if (length > static_cast<std::uint64_t>(max_header_bytes)) {
    SHARDMESH_TRY(const bool is_pointer, is_lfs_pointer(source));
    if (is_pointer)
      return fail(errc::unsupported, "it is a pointer of Git LFS, not the file itself").with_hint("git lfs pull");
    return fail(errc::bad_format, "the header is too long")
        .with_values(fmt::format("at most {} bytes", max_header_bytes), fmt::format("{}", length));
  }
  if (length > static_cast<std::uint64_t>(source.size_bytes() - 8))
    return fail(errc::bad_format, "the header is longer than the file")
        .with_values(fmt::format("at most {} bytes", source.size_bytes() - 8), fmt::format("{}", length));
  return static_cast<std::int64_t>(length);
}

// Reads a header of the usual form; nothing for another form or any defect.
std::optional<header> read_usual(std::string_view text) {
  safetensors::header made;
  made.data_begin = static_cast<std::int64_t>(text.size()) + 8;
  made.entries.reserve(text.size() / 128);  // few entries with layer names are shorter
  const auto add = [&](raw_entry& raw) {
    auto entry = check_entry(raw, made.data_begin);
    if (entry) made.entries.push_back(*std::move(entry));
    return entry.has_value();
  };
  if (!scan_usual_header(text, made.metadata, add)) return std::nullopt;
  return made;
}

result<header> read_header(const byte_source& source) {
  SHARDMESH_TRY(const std::int64_t length, header_length(source));
  SHARDMESH_TRY(check_readable(source, 8, length, max_header_bytes));
  std::string text(static_cast<std::size_t>(length), '\0');
  SHARDMESH_TRY(source.read(8, std::as_writable_bytes(std::span(text))));
  // nlohmann-json would skip a byte order mark, but the Rust package refuses it.
  if (const std::size_t first = text.find_first_not_of(" \t\n\r"); first == std::string::npos || text[first] != '{')
    return fail(errc::bad_format, "the header does not begin with {");
  // nlohmann-json takes a NUL for the end of its input and would ignore the rest.
  if (text.find('\0') != std::string::npos) return fail(errc::bad_format, "the header holds a NUL byte");

  auto usual = read_usual(text);
  if (!usual) {
    SHARDMESH_TRY(usual, read_any(text));
  }
  safetensors::header header = *std::move(usual);
  SHARDMESH_TRY(check_names(header.entries));
  const auto by_place = [](const entry& a, const entry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  };
  if (!std::is_sorted(header.entries.begin(), header.entries.end(), by_place))
    std::sort(header.entries.begin(), header.entries.end(), by_place);
  SHARDMESH_TRY(check_tiling(header, source.size_bytes()));
  return header;
}

}  // namespace

result<header> parse_header(const byte_source& source) {
  auto header = read_header(source);
  if (header) return header;
  error e = std::move(header).error();
  return e.file.empty() ? std::move(e).with_file(source.name()) : e;
}

std::optional<std::string_view> find_metadata(const safetensors::header& header, std::string_view key) {
  for (const auto& [name, value] : header.metadata)
    if (name == key) return value;
  return std::nullopt;
}

}  // namespace shardmesh::safetensors
