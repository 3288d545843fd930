// SPDX-License-Identifier: Apache-2.0
#include "page.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "page_parts.hpp"

import shardmesh;
import shardmesh.core;
import shardmesh.digest;

namespace tool {
using namespace shardmesh;

namespace {

std::string_view part(std::string_view name) {
  const auto all = page_parts();
  const auto found = std::find_if(all.begin(), all.end(), [&](const page_part& one) { return one.name == name; });
  return found == all.end() ? std::string_view{} : found->text;
}

std::string escaped_for_html(std::string_view text) {
  std::string safe;
  for (const char c : text)
    if (c == '&' || c == '<' || c == '>' || c == '"' || c == '\'')
      safe += "&#" + std::to_string(static_cast<int>(c)) + ";";
    else
      safe += c;
  return safe;
}

// Three bytes become four letters; the digest's 32 bytes end in two, which become three letters and a "=".
std::string base64_of_hex(std::string_view hex) {
  constexpr std::string_view letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const auto digit = [&](std::size_t i) -> std::uint32_t {
    return i >= hex.size() ? 0U : static_cast<std::uint32_t>(hex[i] <= '9' ? hex[i] - '0' : hex[i] - 'a' + 10);
  };
  std::string text;
  for (std::size_t i = 0; i < hex.size(); i += 3)  // 12 bits
    for (const std::uint32_t bits = digit(i) << 8 | digit(i + 1) << 4 | digit(i + 2); const int shift : {6, 0})
      text += letters[bits >> shift & 63];
  const std::size_t letters_of_bytes = (hex.size() * 4 + 5) / 6;
  text.resize(letters_of_bytes);
  text.append((4 - text.size() % 4) % 4, '=');
  return text;
}

// Returns the hash as browsers compare it: that of the text between the tags.
std::string source_of(std::string_view text) {
  return "'sha256-" + base64_of_hex(sha256::hex_of(std::as_bytes(std::span(text)))) + "'";
}

struct member {
  std::string_view name, text;
};

// Fills the template in one pass: text inside a member is not examined again.
std::string filled(std::string_view text, std::span<const member> members) {
  std::string made;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = std::min(text.find("{{", at), text.size());
    made += text.substr(at, begin - at);
    const std::size_t end = text.find("}}", begin);
    if (end == std::string_view::npos) break;
    const std::string_view name = text.substr(begin + 2, end - begin - 2);
    for (const member& one : members)
      if (one.name == name) made += one.text;
    at = end + 2;
  }
  return made;
}

}  // namespace

std::string make_page(std::string_view title, std::initializer_list<std::string_view> scripts,
                      std::string_view document) {
  std::string data;
  data.reserve(document.size());
  for (const char c : document)
    if (c == '<')
      data += "\\u003c";
    else
      data += c;
  const std::string style = "\n" + std::string(part("style.css"));
  std::string script = "\"use strict\";\n";
  for (const std::string_view name : scripts) script += part(name);
  const std::string policy = "default-src 'none'; script-src " + source_of(script) + "; style-src " + source_of(style) +
                             "; base-uri 'none'; form-action 'none'";
  const std::string name = escaped_for_html(escaped(title));
  const auto members = std::to_array<member>(
      {{"title", name}, {"policy", policy}, {"style", style}, {"data", data}, {"script", script}});
  return filled(part("page.html"), members);
}

}  // namespace tool
