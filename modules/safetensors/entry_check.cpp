// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <plural.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
module shardmesh.safetensors;

import :dtype_names;
import :entry_check;
import :usual_header;

namespace shardmesh::safetensors {
namespace {

// Returns true when the product of sizes overflows, even before a size of 0, as in the Rust package.
bool overflows(std::span<const std::int64_t> shape) {
  std::uint64_t count = 1;
  for (const std::int64_t size : shape)
    if (__builtin_mul_overflow(count, static_cast<std::uint64_t>(size), &count)) return true;
  return false;
}

}  // namespace

result<entry> check_entry(raw_entry& raw, std::int64_t data_begin) {
  const auto bad = [&](errc code, std::string message) { return fail(code, std::move(message)).with_key(raw.name); };
  const auto type = parse_dtype_name(raw.type);
  if (!type) return bad(errc::unsupported, fmt::format("has the unknown dtype {}", raw.type));
  const auto [begin, end] = raw.offsets;
  safetensors::entry entry{{}, *type, extents(std::span(raw.shape.data(), raw.rank)), 0, 0};
  const auto count = checked_volume(entry.shape);
  const auto bit_count = count ? checked_multiply(*count, bits(*type)) : std::nullopt;
  if (!bit_count || overflows(entry.shape))
    return bad(errc::overflow, fmt::format("{} of {} does not fit in 64 bits", raw.type, to_string(entry.shape)));
  if (*bit_count % 8 != 0)
    return bad(errc::bad_format,
               fmt::format("{} of {} is not a whole number of bytes", raw.type, to_string(entry.shape)));
  if (end < begin) return bad(errc::bad_format, fmt::format("data_offsets [{}, {}] run backwards", begin, end));
  if (end - begin != *bit_count / 8)
    return bad(errc::bad_format,
               fmt::format("{} of {} does not fit its data_offsets", raw.type, to_string(entry.shape)))
        .with_values(detail::counted(*bit_count / 8, "byte"), fmt::format("{}", end - begin));
  const auto absolute_end = checked_add(end, data_begin);
  if (!absolute_end)
    return bad(errc::overflow, fmt::format("data_offsets end at {}, which does not fit in 64 bits", end));
  entry.begin = begin + data_begin;
  entry.end = *absolute_end;
  // PyTorch's F4 tensors hold two values per byte.
  if (*type == dtype::float4_e2m1fn && raw.rank > 0 && entry.shape[raw.rank - 1] % 2 == 0) {
    entry.type = dtype::float4_e2m1fn_x2;
    entry.shape[raw.rank - 1] /= 2;
  }
  entry.name = std::move(raw.name);
  return entry;
}

}  // namespace shardmesh::safetensors
