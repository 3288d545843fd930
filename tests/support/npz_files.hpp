// SPDX-License-Identifier: Apache-2.0
// Makes NumPy arrays and ZIP archives of them by hand, valid or not.
#pragma once
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace npz_files {

/// A number as the file holds it: little-endian.
template <class Number>
std::string number(Number value) {
  const auto bytes = std::bit_cast<std::array<char, sizeof(Number)>>(value);
  return {bytes.data(), bytes.size()};
}

/// Numbers one after the other.
template <class Number>
std::string numbers(const std::vector<Number>& values) {
  std::string made;
  for (const Number value : values) made += number(value);
  return made;
}

/// The header of an array with this text, which is padded as NumPy pads it.
inline std::string header(std::string_view dict, int version = 1) {
  const std::size_t width = version == 1 ? 2 : 4;
  std::string text(dict);
  text.append(63 - (8 + width + text.size()) % 64, ' ');
  text += '\n';
  std::string made = "\x93NUMPY";
  made += static_cast<char>(version);
  made += '\0';
  made +=
      version == 1 ? number(static_cast<std::uint16_t>(text.size())) : number(static_cast<std::uint32_t>(text.size()));
  return made + text;
}

/// The dict of a header. `shape` is its literal: "(2, 3)".
inline std::string dict(std::string_view descr, std::string_view shape, bool is_fortran = false) {
  return "{'descr': '" + std::string(descr) + "', 'fortran_order': " + (is_fortran ? "True" : "False") +
         ", 'shape': " + std::string(shape) + ", }";
}

/// An array with these elements.
inline std::string array(std::string_view descr, std::string_view shape, std::string_view elements,
                         bool is_fortran = false) {
  return header(dict(descr, shape, is_fortran)) + std::string(elements);
}

/// The CRC-32 of ZIP archives, bit by bit.
inline std::uint32_t crc32(std::string_view bytes) {
  std::uint32_t sum = 0xffffffffU;
  for (const char byte : bytes) {
    sum ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) sum = sum >> 1 ^ (sum & 1 ? 0xedb88320U : 0U);
  }
  return ~sum;
}

/// One record. Its CRC-32 in the headers differs from that of `data` in the bits of `crc_change`.
struct record {
  std::string name, data;
  bool is_deflated = false;  // in blocks without compression
  std::uint32_t crc_change = 0;
  std::uint16_t method = 0;  // of a record that is not deflated
  std::uint16_t flags = 0;   // 0x0800: the name is UTF-8
};

/// Raw deflate data of stored blocks.
inline std::string deflated(std::string_view bytes) {
  constexpr std::size_t most = 65535;
  std::string made;
  do {
    const std::string_view block = bytes.substr(0, most);
    bytes.remove_prefix(block.size());
    made += static_cast<char>(bytes.empty() ? 1 : 0);
    const auto length = static_cast<std::uint16_t>(block.size());
    made += number(length) + number(static_cast<std::uint16_t>(~length)) + std::string(block);
  } while (!bytes.empty());
  return made;
}

/// A ZIP archive of these records.
inline std::string archive(const std::vector<record>& records) {
  std::string made, directory;
  for (const record& one : records) {
    const std::string bytes = one.is_deflated ? deflated(one.data) : one.data;
    const std::string common =
        number(std::uint16_t{20}) + number(one.flags) + number(one.is_deflated ? std::uint16_t{8} : one.method) +
        number(std::uint32_t{0x210000}) + number(crc32(one.data) ^ one.crc_change) +
        number(static_cast<std::uint32_t>(bytes.size())) + number(static_cast<std::uint32_t>(one.data.size())) +
        number(static_cast<std::uint16_t>(one.name.size())) + number(std::uint16_t{0});
    directory += "PK\1\2" + number(std::uint16_t{20}) + common + number(std::uint16_t{0}) + number(std::uint16_t{0}) +
                 number(std::uint16_t{0}) + number(std::uint32_t{0}) + number(static_cast<std::uint32_t>(made.size())) +
                 one.name;
    made += "PK\3\4" + common + one.name + bytes;
  }
  const auto count = static_cast<std::uint16_t>(records.size());
  const auto begin = static_cast<std::uint32_t>(made.size()), length = static_cast<std::uint32_t>(directory.size());
  return made + directory + "PK\5\6" + number(std::uint32_t{0}) + number(count) + number(count) + number(length) +
         number(begin) + number(std::uint16_t{0});
}

}  // namespace npz_files
