// SPDX-License-Identifier: Apache-2.0
// Makes tar archives by hand, valid or not.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace tar_files {

/// The fields of a header that tests vary.
struct header {
  std::string name;
  std::size_t size = 0;
  char type = '0';
  std::string size_field = {};  // instead of `size`: 12 bytes
  std::string prefix = {};
  bool is_gnu = false;
};

inline std::string octal(std::size_t value, int digits) {
  char text[32];
  std::snprintf(text, sizeof text, "%0*zo", digits, value);
  return text;
}

/// A header with its checksum.
inline std::string bytes_of(const header& one) {
  std::string made(512, '\0');
  const auto put = [&](std::size_t at, std::string_view text) { made.replace(at, text.size(), text); };
  put(0, std::string_view(one.name).substr(0, 100));
  put(100, "0000644");
  put(108, "0000000");
  put(116, "0000000");
  put(124, one.size_field.empty() ? octal(one.size, 11) : one.size_field);
  put(136, "00000000000");
  put(148, "        ");
  made[156] = one.type;
  if (one.is_gnu)
    put(257, "ustar  ");
  else
    put(257, std::string_view("ustar\0"
                              "00",
                              8));
  put(345, one.prefix);
  std::size_t sum = 0;
  for (const char byte : made) sum += static_cast<unsigned char>(byte);
  put(148, octal(sum, 6));
  made[154] = '\0';
  return made;
}

/// Data with zeros up to a whole block.
inline std::string padded(std::string_view data) {
  std::string made(data);
  made.append((512 - made.size() % 512) % 512, '\0');
  return made;
}

inline std::string member(std::string_view name, std::string_view data, char type = '0') {
  return bytes_of({.name = std::string(name), .size = data.size(), .type = type}) + padded(data);
}

/// The two empty blocks at the end of an archive.
inline std::string end() {
  return std::string(1024, '\0');
}

/// A field of pax, with its length.
inline std::string pax(std::string_view key, std::string_view value) {
  const std::string rest = " " + std::string(key) + "=" + std::string(value) + "\n";
  std::size_t length = rest.size() + 1;
  while (std::to_string(length).size() + rest.size() != length) ++length;
  return std::to_string(length) + rest;
}

}  // namespace tar_files
