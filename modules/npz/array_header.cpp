// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
module shardmesh.npz;

import :header_dict;

namespace shardmesh::npz {
namespace {

constexpr std::string_view magic = "\x93NUMPY";
constexpr std::size_t preamble_bytes = 8;  // the magic and the version

struct known_type {
  dtype type;
  std::string_view descr;  // as NumPy writes it
};
constexpr std::array known_types{
    known_type{dtype::boolean, "|b1"},   known_type{dtype::uint8, "|u1"},      known_type{dtype::int8, "|i1"},
    known_type{dtype::uint16, "<u2"},    known_type{dtype::int16, "<i2"},      known_type{dtype::uint32, "<u4"},
    known_type{dtype::int32, "<i4"},     known_type{dtype::uint64, "<u8"},     known_type{dtype::int64, "<i8"},
    known_type{dtype::float16, "<f2"},   known_type{dtype::float32, "<f4"},    known_type{dtype::float64, "<f8"},
    known_type{dtype::complex64, "<c8"}, known_type{dtype::complex128, "<c16"}};

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Sets the dtype that the spelling of the type names, if shardmesh has it.
void find_type(array_header& header) {
  std::string_view descr = header.descr;
  if (descr.empty()) return;
  const char order = descr.front();
  const bool has_order = order == '<' || order == '>' || order == '|' || order == '=';
  if (has_order) descr.remove_prefix(1);
  for (const known_type& known : known_types)
    if (known.descr.substr(1) == descr) {
      header.type = known.type;
      header.is_big_endian = order == '>' && item_bytes(known.type) > 1;
    }
}

}  // namespace

bool begins_array(std::span<const std::byte> first) {
  return text_of(first).starts_with(magic);
}

result<std::int64_t> header_bytes_of(std::span<const std::byte> first) {
  if (!begins_array(first))
    return fail(errc::bad_format, "is not a NumPy array")
        .with_values("the bytes \"\\x93NUMPY\" at its beginning", "others");
  const auto byte = [&](std::size_t i) { return std::to_integer<std::int64_t>(first[i]); };
  if (first.size() < preamble_bytes + 2) return bad_header("it is cut off");
  const std::int64_t major = byte(6), minor = byte(7);
  if (major < 1 || major > 3 || minor != 0)
    return fail(errc::unsupported, "is of a version of NumPy's format that is not read")
        .with_values("1.0, 2.0, or 3.0", fmt::format("{}.{}", major, minor));
  const std::size_t width = major == 1 ? 2 : 4;
  if (first.size() < preamble_bytes + width) return bad_header("it is cut off");
  std::int64_t length = 0;
  for (std::size_t i = width; i-- > 0;) length = length << 8 | byte(preamble_bytes + i);
  const std::int64_t all = static_cast<std::int64_t>(preamble_bytes + width) + length;
  if (all > max_header_bytes)
    return bad_header("it is too large")
        .with_values(fmt::format("at most {} bytes", max_header_bytes), fmt::format("{}", all));
  return all;
}

result<array_header> parse_array_header(std::span<const std::byte> header) {
  SHARDMESH_TRY(const std::int64_t length, header_bytes_of(header));
  if (length != static_cast<std::int64_t>(header.size()))
    return bad_header("it is cut off").with_values(fmt::format("{} bytes", length), fmt::format("{}", header.size()));
  const std::size_t text_begin =
      preamble_bytes + (std::to_integer<int>(header[6]) == 1 ? std::size_t{2} : std::size_t{4});
  SHARDMESH_TRY(array_header made, parse_header_dict(text_of(header.subspan(text_begin))));
  find_type(made);
  made.data_begin = length;
  made.crc32 = crc32_of(header);
  const auto elements = checked_volume(made.shape);
  const auto bytes = elements ? size_bytes(made.type, *elements) : std::nullopt;  // 0 for an undefined type
  if (!bytes || !checked_add(made.data_begin, *bytes))
    return fail(errc::overflow, fmt::format("its shape {} does not fit in 64 bits", to_string(made.shape)));
  made.data_bytes = *bytes;
  return made;
}

std::string_view descr_of(dtype type) {
  const auto found =
      std::find_if(known_types.begin(), known_types.end(), [&](const known_type& known) { return known.type == type; });
  return found == known_types.end() ? std::string_view() : found->descr;
}

std::string format_array_header(dtype type, const extents& shape) {
  constexpr std::size_t alignment = 64;
  constexpr std::size_t longest_number = 21;  // NumPy leaves room, so that the first size can grow in place
  std::string sizes;
  for (std::size_t d = 0; d < shape.rank(); ++d) sizes += fmt::format("{}{}", d == 0 ? "" : ", ", shape[d]);
  std::string text = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}", descr_of(type), sizes,
                                 shape.rank() == 1 ? "," : "");
  if (!shape.empty()) text.append(longest_number - fmt::format("{}", shape[0]).size(), ' ');
  const std::size_t taken = preamble_bytes + 2 + text.size() + 1;
  text.append(alignment - taken % alignment, ' ');
  text += '\n';
  std::string made(magic);
  made += {'\1', '\0', static_cast<char>(text.size() & 0xFFU), static_cast<char>(text.size() >> 8)};
  return made + text;
}

std::string kind_of(const array_header& header) {
  std::string_view descr = header.descr;
  if (descr.starts_with('[') || descr.starts_with('(')) return "NumPy array of records";
  if (!descr.empty() && (descr[0] == '<' || descr[0] == '>' || descr[0] == '|' || descr[0] == '='))
    descr.remove_prefix(1);
  switch (descr.empty() ? '\0' : descr[0]) {
    case 'O':
      return "NumPy array of Python objects (a pickle, which is never executed)";
    case 'V':
      return "NumPy array of raw bytes (ml_dtypes stores bfloat16 and float8 in this way, without their name)";
    case 'S':
    case 'a':
    case 'U':
    case 'T':
      return "NumPy array of texts";
    case 'M':
    case 'm':
      return "NumPy array of dates";
    case 'f':
    case 'c':
      // "float32" is a name that numpy.dtype takes, and that NumPy does not write.
      if (descr.find_first_not_of("0123456789", 1) == descr.npos) return "NumPy array of extended precision";
      [[fallthrough]];
    default:
      return "NumPy array of an unknown type";
  }
}

}  // namespace shardmesh::npz
