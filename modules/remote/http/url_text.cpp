// SPDX-License-Identifier: Apache-2.0
module;
#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
module shardmesh.remote;

import :url_text;

namespace shardmesh::remote {
namespace {

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool is_encoded_at(std::string_view text, std::size_t at) {
  return text[at] == '%' && at + 2 < text.size() && hex_value(text[at + 1]) >= 0 && hex_value(text[at + 2]) >= 0;
}

void add_encoded(std::string& to, char c) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  const auto byte = static_cast<unsigned char>(c);
  to += '%';
  to += digits[byte >> 4];
  to += digits[byte & 15];
}

// The parts of a URL; each refers to it. The path begins with "/" or is empty, and the query with "?". Objects have no
// fragments: "#" is a character of the path.
struct url_parts {
  std::string_view origin, path, query;
};

url_parts parts_of(std::string_view url) {
  const std::size_t host = url.find("://");
  const std::size_t begin =
      host == std::string_view::npos ? 0 : std::min(url.find_first_of("/?", host + 3), url.size());
  const std::size_t query = std::min(url.find('?', begin), url.size());
  return {url.substr(0, begin), url.substr(begin, query - begin), url.substr(query)};
}

}  // namespace

std::string encoded_url(std::string_view url) {
  constexpr std::string_view refused = "\"<>\\^`{|}#";
  std::string made;
  for (std::size_t i = 0; i != url.size(); ++i) {
    const char c = url[i];
    const bool is_legal = c > ' ' && c < 0x7f && refused.find(c) == std::string_view::npos;
    if (is_legal && (c != '%' || is_encoded_at(url, i)))
      made += c;
    else
      add_encoded(made, c);
  }
  return made;
}

std::string decoded(std::string_view text) {
  std::string made;
  for (std::size_t i = 0; i < text.size(); ++i)
    if (is_encoded_at(text, i)) {
      made += static_cast<char>(hex_value(text[i + 1]) * 16 + hex_value(text[i + 2]));
      i += 2;
    } else {
      made += text[i];
    }
  return made;
}

bool is_literal_name(std::string_view name) {
  for (std::size_t i = 0; i < name.size(); ++i)
    if (name[i] == '?' || is_encoded_at(name, i)) return false;
  return true;
}

bool leads_up_encoded(std::string_view url) {
  std::string_view path = parts_of(url).path;
  while (!path.empty()) {
    const std::size_t end = std::min(path.find('/'), path.size());
    const std::string_view part = path.substr(0, end);
    path.remove_prefix(std::min(end + 1, path.size()));
    if (part.find('%') == std::string_view::npos) continue;
    std::string steps = "/" + decoded(part) + "/";
    std::replace(steps.begin(), steps.end(), '\\', '/');  // some servers take it for a slash
    if (steps.find("/../") != std::string::npos) return true;
  }
  return false;
}

std::string origin_of(std::string_view url) {
  std::string made(parts_of(url).origin);
  const std::size_t host = made.find("://");
  const std::size_t user = made.rfind('@');
  if (host != std::string::npos && user != std::string::npos && user > host) made.erase(host + 3, user - host - 2);
  for (char& c : made)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return made;
}

std::string redirected(std::string_view from, std::string_view location) {
  const url_parts parts = parts_of(from);
  const std::size_t scheme = location.find("://");
  if (scheme != std::string_view::npos && location.find_first_of("/?#") > scheme) return std::string(location);
  if (location.starts_with("//")) return std::string(from.substr(0, from.find("//"))) + std::string(location);
  if (location.starts_with("/")) return std::string(parts.origin) + std::string(location);
  const std::size_t slash = parts.path.rfind('/');
  const std::string_view folder = slash == std::string_view::npos ? "/" : parts.path.substr(0, slash + 1);
  return std::string(parts.origin) + std::string(folder) + std::string(location);
}

std::string last_part(std::string_view url) {
  std::string_view path = parts_of(url).path;
  while (path.ends_with('/')) path.remove_suffix(1);
  const std::size_t slash = path.rfind('/');
  return decoded(slash == std::string_view::npos ? path : path.substr(slash + 1));
}

bool is_folder_url(std::string_view url) {
  const std::string_view path = parts_of(url).path;
  return path.empty() || path.ends_with('/');
}

std::string member_url(std::string_view folder, std::string_view name) {
  const url_parts parts = parts_of(folder);
  std::string made = std::string(parts.origin) + std::string(parts.path);
  if (!is_folder_url(folder) || parts.path.empty()) made += '/';
  return made + std::string(name) + std::string(parts.query);
}

}  // namespace shardmesh::remote
