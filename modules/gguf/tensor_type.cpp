// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
module shardmesh.gguf;

namespace shardmesh::gguf {
namespace {

constexpr type_traits plain_type(tensor_type type, std::string_view name, std::int64_t bytes, dtype element) {
  return {.type = type, .name = name, .block_elements = 1, .block_bytes = bytes, .plain = element};
}

enum class support : std::uint8_t { none, read, both };

constexpr type_traits block_type(tensor_type type, std::string_view name, std::int64_t elements, std::int64_t bytes,
                                 support how) {
  return {.type = type,
          .name = name,
          .block_elements = elements,
          .block_bytes = bytes,
          .plain = dtype::undefined,
          .is_decoded = how != support::none,
          .is_encoded = how == support::both};
}

// The types IQ1 to IQ3 look their values up in tables of thousands of numbers, which no rule generates. Q8_1 and Q8_K
// exist only in memory, and their layout has changed.
constexpr std::array all{
    plain_type(tensor_type::f32, "F32", 4, dtype::float32),
    plain_type(tensor_type::f16, "F16", 2, dtype::float16),
    block_type(tensor_type::q4_0, "Q4_0", 32, 18, support::both),
    block_type(tensor_type::q4_1, "Q4_1", 32, 20, support::both),
    block_type(tensor_type::q5_0, "Q5_0", 32, 22, support::both),
    block_type(tensor_type::q5_1, "Q5_1", 32, 24, support::both),
    block_type(tensor_type::q8_0, "Q8_0", 32, 34, support::both),
    block_type(tensor_type::q8_1, "Q8_1", 32, 0, support::none),
    block_type(tensor_type::q2_k, "Q2_K", 256, 84, support::read),
    block_type(tensor_type::q3_k, "Q3_K", 256, 110, support::read),
    block_type(tensor_type::q4_k, "Q4_K", 256, 144, support::both),
    block_type(tensor_type::q5_k, "Q5_K", 256, 176, support::read),
    block_type(tensor_type::q6_k, "Q6_K", 256, 210, support::both),
    block_type(tensor_type::q8_k, "Q8_K", 256, 0, support::none),
    block_type(tensor_type::iq2_xxs, "IQ2_XXS", 256, 66, support::none),
    block_type(tensor_type::iq2_xs, "IQ2_XS", 256, 74, support::none),
    block_type(tensor_type::iq3_xxs, "IQ3_XXS", 256, 98, support::none),
    block_type(tensor_type::iq1_s, "IQ1_S", 256, 50, support::none),
    block_type(tensor_type::iq4_nl, "IQ4_NL", 32, 18, support::read),
    block_type(tensor_type::iq3_s, "IQ3_S", 256, 110, support::none),
    block_type(tensor_type::iq2_s, "IQ2_S", 256, 82, support::none),
    block_type(tensor_type::iq4_xs, "IQ4_XS", 256, 136, support::read),
    plain_type(tensor_type::i8, "I8", 1, dtype::int8),
    plain_type(tensor_type::i16, "I16", 2, dtype::int16),
    plain_type(tensor_type::i32, "I32", 4, dtype::int32),
    plain_type(tensor_type::i64, "I64", 8, dtype::int64),
    plain_type(tensor_type::f64, "F64", 8, dtype::float64),
    block_type(tensor_type::iq1_m, "IQ1_M", 256, 56, support::none),
    plain_type(tensor_type::bf16, "BF16", 2, dtype::bfloat16),
    block_type(tensor_type::tq1_0, "TQ1_0", 256, 54, support::read),
    block_type(tensor_type::tq2_0, "TQ2_0", 256, 66, support::read),
    block_type(tensor_type::mxfp4, "MXFP4", 32, 17, support::read),
    block_type(tensor_type::nvfp4, "NVFP4", 64, 36, support::read),
    block_type(tensor_type::q1_0, "Q1_0", 128, 18, support::none),
};

constexpr char upper(char c) {
  return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
}

}  // namespace

std::span<const type_traits> tensor_types() {
  return all;
}

const type_traits* find_type(std::uint32_t number) {
  const auto found = std::find_if(
      all.begin(), all.end(), [&](const type_traits& one) { return static_cast<std::uint32_t>(one.type) == number; });
  return found == all.end() ? nullptr : &*found;
}

const type_traits* find_type(std::string_view name) {
  const auto found = std::find_if(all.begin(), all.end(), [&](const type_traits& one) {
    return std::equal(one.name.begin(), one.name.end(), name.begin(), name.end(),
                      [](char a, char b) { return a == upper(b); });
  });
  return found == all.end() ? nullptr : &*found;
}

const type_traits& traits_of(tensor_type type) {
  return *find_type(static_cast<std::uint32_t>(type));
}

const type_traits* type_that_holds(dtype element) {
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const type_traits& one) { return one.is_plain() && one.plain == element; });
  return found == all.end() ? nullptr : &*found;
}

result<std::int64_t> stored_bytes(const type_traits& type, const extents& shape) {
  const std::int64_t row = shape.empty() ? 1 : shape[shape.rank() - 1];
  if (row % type.block_elements != 0)
    return fail(errc::bad_format, fmt::format("its rows are not whole blocks of {}", type.name))
        .with_values(fmt::format("a multiple of {} elements", type.block_elements), fmt::format("{}", row));
  const auto elements = checked_volume(shape);
  const auto bytes = elements ? checked_multiply(*elements / type.block_elements, type.block_bytes) : std::nullopt;
  if (!bytes) return fail(errc::overflow, fmt::format("{} of {} does not fit in 64 bits", type.name, to_string(shape)));
  return *bytes;
}

}  // namespace shardmesh::gguf
