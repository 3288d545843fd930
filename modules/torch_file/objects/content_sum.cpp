// SPDX-License-Identifier: Apache-2.0
module;
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
module shardmesh.torch_file;

import :content_sum;

namespace shardmesh::torch_file {

void content_sum::number(std::uint64_t value) {
  const auto bytes = std::bit_cast<std::array<std::byte, 8>>(value);
  sum_.update(bytes);
}

void content_sum::text(std::string_view value) {
  number(value.size());
  sum_.update(std::as_bytes(std::span(value.data(), value.size())));
}

void content_sum::leaf(const pickle::value& value) {
  number(static_cast<std::uint64_t>(value.kind()));
  switch (value.kind()) {
    case pickle::kind::boolean:
      return number(*value.as_bool() ? 1 : 0);
    case pickle::kind::integer:
      return text(value.decimal(1 << 20).value_or("beyond bounds"));
    case pickle::kind::floating:
      return number(std::bit_cast<std::uint64_t>(*value.as_float()));
    case pickle::kind::text:
      return text(*value.text());
    case pickle::kind::bytes:
    case pickle::kind::bytearray:
      number(value.bytes()->size());
      return sum_.update(*value.bytes());
    case pickle::kind::global: {
      // Python 3's name: old protocols write some names differently, and a rewritten pickle has the new form.
      const auto [module_name, name] = python3_name(value);
      text(module_name);
      return text(name);
    }
    case pickle::kind::extension:
      return number(value.extension_code());
    default:
      return;
  }
}

}  // namespace shardmesh::torch_file
