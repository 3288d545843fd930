// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
module shardmesh.storage;

import :tar_header;

namespace shardmesh::tar_header {
namespace {

// A field of a header, up to its first NUL.
std::string_view text_at(const block& header, std::size_t offset, std::size_t length) {
  const std::string_view field(reinterpret_cast<const char*>(header.data()) + offset, length);
  return field.substr(0, field.find('\0'));
}

}  // namespace

std::optional<std::int64_t> number_at(const block& header, std::size_t offset, std::size_t length) {
  std::optional<std::int64_t> value = 0;
  if ((header[offset] & std::byte{0x80}) != std::byte{0}) {  // the first bit marks base 256; the next one, a negative
    for (std::size_t i = 0; i < length; ++i) {
      const std::byte byte = i == 0 ? header[offset] & std::byte{0x7f} : header[offset + i];
      if (value) value = checked_multiply(*value, 256);
      if (value) value = checked_add(*value, std::to_integer<std::int64_t>(byte));
    }
    return value;
  }
  std::string_view digits = text_at(header, offset, length);
  while (digits.starts_with(' ')) digits.remove_prefix(1);
  while (digits.ends_with(' ')) digits.remove_suffix(1);
  for (const char digit : digits) {
    if (digit < '0' || digit > '7') return std::nullopt;
    if (value) value = checked_multiply(*value, 8);
    if (value) value = checked_add(*value, digit - '0');
  }
  return value;
}

bool is_zero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte byte) { return byte == std::byte{0}; });
}

bool has_its_sum(const block& header) {
  constexpr std::size_t sum_at = 148, sum_bytes = 8;
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < header.size(); ++i)
    sum += i >= sum_at && i < sum_at + sum_bytes ? ' ' : std::to_integer<std::int64_t>(header[i]);
  return number_at(header, sum_at, sum_bytes) == sum;
}

bool has_mark(const block& header) {
  return std::string_view(reinterpret_cast<const char*>(header.data()) + 257, 5) == "ustar";
}

std::string_view refused_kind(char type) {
  switch (type) {
    case '\0':
    case '0':
    case '5':
    case '7':
    case 'L':
    case 'K':
    case 'x':
    case 'g':
      return {};
    case '1':
      return "a hard link";
    case '2':
      return "a symbolic link";
    case '3':
    case '4':
      return "a device";
    case '6':
      return "a pipe";
    case 'S':
      return "a sparse file";
    case 'M':
      return "a part of a file in several archives";
    default:
      return "of an unknown kind";
  }
}

std::string name_of(const block& header) {
  const std::string_view name = text_at(header, 0, 100);
  // GNU's header has other fields in the place of the prefix.
  const bool has_prefix = std::to_integer<char>(header[262]) == '\0';
  const std::string_view prefix = has_prefix ? text_at(header, 345, 155) : std::string_view();
  return prefix.empty() ? std::string(name) : fmt::format("{}/{}", prefix, name);
}

}  // namespace shardmesh::tar_header
