// SPDX-License-Identifier: Apache-2.0
module;
#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
module shardmesh.torch_file;

import :numpy_code;

namespace shardmesh::torch_file {

std::optional<numpy_code> parse_numpy_code(std::string_view text) {
  if (text.size() < 3 || std::string_view("<>|").find(text[0]) == std::string_view::npos) return std::nullopt;
  numpy_code code{text[0], text[1], 0, {}};
  std::int64_t number = 0;
  const auto [end, status] = std::from_chars(text.data() + 2, text.data() + text.size(), number);
  if (status != std::errc{} || number < 0 || number > (1 << 20)) return std::nullopt;
  const std::string_view rest(end, static_cast<std::size_t>(text.data() + text.size() - end));
  const bool is_time = code.kind == 'M' || code.kind == 'm';
  if (rest.empty() == is_time) return std::nullopt;
  if (is_time) {
    if (rest.size() < 3 || rest.size() > 16 || rest.front() != '[' || rest.back() != ']') return std::nullopt;
    code.unit = rest.substr(1, rest.size() - 2);
    if (!std::all_of(code.unit.begin(), code.unit.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }))
      return std::nullopt;
  }
  code.item_bytes = code.kind == 'U' ? 4 * number : number;
  const auto is_one_of = [&](std::initializer_list<std::int64_t> widths) {
    return std::find(widths.begin(), widths.end(), number) != widths.end();
  };
  switch (code.kind) {
    case 'b':
      return is_one_of({1}) ? std::optional(code) : std::nullopt;
    case 'i':
    case 'u':
      return is_one_of({1, 2, 4, 8}) ? std::optional(code) : std::nullopt;
    case 'f':
      return is_one_of({2, 4, 8}) ? std::optional(code) : std::nullopt;
    case 'c':
      return is_one_of({8, 16}) ? std::optional(code) : std::nullopt;
    case 'M':
    case 'm':
      return is_one_of({8}) ? std::optional(code) : std::nullopt;
    case 'U':
    case 'S':
      return code;
    default:
      return std::nullopt;
  }
}

std::optional<std::int64_t> bytes_of_shape(std::span<const std::int64_t> shape, std::int64_t item_bytes) {
  std::int64_t total = item_bytes;
  if (shape.size() > most_dimensions) return std::nullopt;
  for (const std::int64_t size : shape) {
    const auto product = size < 0 ? std::nullopt : checked_multiply(total, size);
    if (!product) return std::nullopt;
    total = *product;
  }
  return total;
}

}  // namespace shardmesh::torch_file
