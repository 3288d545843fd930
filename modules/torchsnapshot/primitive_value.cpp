// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>
module shardmesh.torchsnapshot;

import shardmesh.pickle;
import shardmesh.torch_file;
import :primitive_value;

namespace shardmesh::torchsnapshot {
namespace {

std::optional<std::vector<std::byte>> base64(std::string_view text) {
  constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  if (text.size() % 4 != 0) return std::nullopt;
  const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  std::vector<std::byte> bytes;
  std::uint32_t group = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::size_t digit = i + padding < text.size() ? digits.find(text[i]) : 0;
    if (digit == std::string_view::npos) return std::nullopt;
    group = group << 6 | static_cast<std::uint32_t>(digit);
    if (i % 4 != 3) continue;
    for (const int shift : {16, 8, 0}) bytes.push_back(static_cast<std::byte>(group >> shift));
    group = 0;
  }
  bytes.resize(bytes.size() - padding);
  return bytes;
}

error odd() {
  return fail(errc::bad_format, "its entry in the manifest has no valid serialized_value");
}

// Pickles an integer beyond 64 bits. The pickle writer has no call for such integers, but it copies parsed ones.
result<std::vector<std::byte>> archive_of_large_integer(const std::string& digits) {
  if (digits.size() > 4300) return odd();  // Python's own limit
  const std::string text = "L" + digits + "L\n.";
  SHARDMESH_TRY(const auto parsed, pickle::graph::parse(std::as_bytes(std::span(text))));
  pickle::writer out(2);
  SHARDMESH_TRY(out.value(parsed.root()));
  return torch_file::object_archive(std::move(out).finish());
}

}  // namespace

result<std::vector<std::byte>> archive_of_value(const std::string& type, const std::string& text) {
  pickle::writer out(2);
  if (type == "int") {
    std::int64_t number = 0;
    const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (status == std::errc::result_out_of_range && end == text.data() + text.size())
      return archive_of_large_integer(text);
    if (status != std::errc() || end != text.data() + text.size()) return odd();
    out.integer(number);
  } else if (type == "str") {
    out.text(text);
  } else if (type == "bool") {
    if (text != "True" && text != "False") return odd();
    out.boolean(text == "True");
  } else {
    const auto bytes = base64(text);
    if (!bytes || (type == "float" && bytes->size() != sizeof(double))) return odd();
    if (type == "bytes") {
      out.bytes(*bytes);
    } else {
      std::array<std::byte, sizeof(double)> number{};
      std::copy(bytes->begin(), bytes->end(), number.begin());
      out.floating(std::bit_cast<double>(number));
    }
  }
  return torch_file::object_archive(std::move(out).finish());
}

}  // namespace shardmesh::torchsnapshot
