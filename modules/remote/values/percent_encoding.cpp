// SPDX-License-Identifier: Apache-2.0
module;
#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.remote;

import :text_parts;

namespace shardmesh::remote {
namespace {

bool is_unreserved(char c) {
  return is_alphanumeric(c) || c == '-' || c == '.' || c == '_' || c == '~';
}

std::string encode(std::string_view text, bool keeps_slash) {
  constexpr char digits[] = "0123456789ABCDEF";
  std::string made;
  made.reserve(text.size());
  for (const char c : text) {
    if (is_unreserved(c) || (keeps_slash && c == '/')) {
      made += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    made += '%';
    made += digits[byte >> 4];
    made += digits[byte & 15];
  }
  return made;
}

}  // namespace

std::string encode_component(std::string_view text) {
  return encode(text, false);
}

std::string encode_path(std::string_view path) {
  return encode(path, true);
}

std::string encode_query(const name_values& parameters) {
  name_values encoded;
  encoded.reserve(parameters.size());
  for (const auto& [name, value] : parameters) encoded.emplace_back(encode_component(name), encode_component(value));
  // By name, then by value: "a-1=" sorts before "a=", but the name "a" before "a-1".
  std::sort(encoded.begin(), encoded.end());
  std::string made;
  for (const auto& [name, value] : encoded) {
    if (!made.empty()) made += '&';
    made += name;
    made += '=';
    made += value;
  }
  return made;
}

}  // namespace shardmesh::remote
