// SPDX-License-Identifier: Apache-2.0
module;
#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
module shardmesh.tree;

import :spelling;

namespace shardmesh {
namespace {

bool is_plain(std::string_view name) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  return !name.empty() && letter(name.front()) &&
         std::all_of(name.begin(), name.end(), [&](char c) { return letter(c) || digit(c); });
}

void append_index(std::string& name, std::int64_t index) {
  char digits[24];
  name.append(digits, std::to_chars(digits, digits + sizeof digits, index).ptr);
}

}  // namespace

void append_key(std::string& name, const path_key& key, bool is_first, key_policy policy) {
  if (policy != key_policy::typed) {
    if (!is_first) name += '.';
    if (key.is_index())
      append_index(name, key.index());
    else
      name += key.name();
    return;
  }
  if (key.is_index()) {
    name += '[';
    append_index(name, key.index());
    name += ']';
  } else if (key.is_integer() || key.is_python()) {
    name += '[';
    name += key.name();
    name += ']';
  } else if (is_plain(key.name())) {
    if (!is_first) name += '.';
    name += key.name();
  } else {
    name += "[\"";
    for (const char c : key.name()) {
      if (c == '"' || c == '\\') name += '\\';
      name += c;
    }
    name += "\"]";
  }
}

namespace {

std::string spelled(const path& p, std::size_t first, key_policy policy) {
  std::string text;
  for (std::size_t i = first; i < p.size(); ++i) append_key(text, p[i], i == first, policy);
  return text;
}

}  // namespace

std::string to_string(const path& p) {
  return spelled(p, 0, key_policy::typed);
}

std::string dotted(const path& p, std::size_t first) {
  return spelled(p, first, key_policy::torch_dcp);
}

std::size_t hash_value(const path& p) {
  std::size_t hash = p.size();
  for (const path_key& key : p) {
    const std::size_t one = hash_value(key);
    hash ^= one + 0x9e3779b97f4a7c15ULL + (hash << 6) + (hash >> 2);
  }
  return hash;
}

}  // namespace shardmesh
