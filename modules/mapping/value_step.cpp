// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
module shardmesh.mapping;

namespace shardmesh {
namespace {

// Elements that are converted to float64 at a time.
constexpr std::int64_t piece_elements = 4096;

double applied(const value_step& step, double x) {
  switch (step.what) {
    case value_step::operation::add:
      return x + step.constant;
    case value_step::operation::multiply:
      return x * step.constant;
    case value_step::operation::divide:
      return x / step.constant;
    case value_step::operation::negate:
      return -x;
    case value_step::operation::exponential:
      return std::exp(x);
    case value_step::operation::logarithm:
      return std::log(x);
  }
  return x;
}

// The error for an element that is finite before the steps only.
error not_finite(const extents& sizes, std::int64_t element, double before, double after) {
  const extents strides = contiguous_strides(sizes);
  box where{extents::filled(sizes.rank(), 0), extents::filled(sizes.rank(), 1)};
  for (std::size_t d = 0; d < sizes.rank(); ++d) where.offsets[d] = element / strides[d] % sizes[d];
  return fail(errc::invalid_argument, "the operations on values turn a finite value into NaN or infinity")
      .with_box(where)
      .with_values("a finite value", fmt::format("{} becomes {}", before, after))
      .with_hint("correct the value in the source, or remove the operations from the rule");
}

}  // namespace

result<value_step> parse_value_step(std::string_view text) {
  std::string dense;
  std::copy_if(text.begin(), text.end(), std::back_inserter(dense), [](char c) { return c != ' '; });
  if (dense == "-x") return value_step{value_step::operation::negate, 0};
  if (dense == "exp(x)") return value_step{value_step::operation::exponential, 0};
  if (dense == "log(x)") return value_step{value_step::operation::logarithm, 0};
  const auto refuse = [&](std::string_view found) {
    return fail(errc::invalid_argument, "an operation on values is wrong")
        .with_values("x + C, x - C, x * C, x / C, -x, exp(x), or log(x)", std::string(found));
  };
  if (dense.size() < 3 || dense[0] != 'x') return refuse(text);
  double constant = 0;
  const char* const end = dense.data() + dense.size();
  const auto parsed = std::from_chars(dense.data() + 2, end, constant);
  if (parsed.ec != std::errc{} || parsed.ptr != end || !std::isfinite(constant)) return refuse(text);
  switch (dense[1]) {
    case '+':
      return value_step{value_step::operation::add, constant};
    case '-':
      return value_step{value_step::operation::add, -constant};
    case '*':
      if (constant == 0) return refuse(text);
      return value_step{value_step::operation::multiply, constant};
    case '/':
      if (constant == 0) return refuse(text);
      return value_step{value_step::operation::divide, constant};
    default:
      return refuse(text);
  }
}

std::string to_string(const value_step& step) {
  switch (step.what) {
    case value_step::operation::add:
      return step.constant < 0 ? fmt::format("x - {}", -step.constant) : fmt::format("x + {}", step.constant);
    case value_step::operation::multiply:
      return fmt::format("x * {}", step.constant);
    case value_step::operation::divide:
      return fmt::format("x / {}", step.constant);
    case value_step::operation::negate:
      return "-x";
    case value_step::operation::exponential:
      return "exp(x)";
    case value_step::operation::logarithm:
      return "log(x)";
  }
  return "x";
}

value_step inverse_of(const value_step& step) {
  using enum value_step::operation;
  switch (step.what) {
    case add:
      return {add, -step.constant};
    case multiply:
      return {divide, step.constant};
    case divide:
      return {multiply, step.constant};
    case negate:
      return step;
    case exponential:
      return {logarithm, 0};
    case logarithm:
      return {exponential, 0};
  }
  return step;
}

result<void> apply_steps(std::span<const value_step> steps, const tensor_view& elements) {
  if (steps.empty()) return {};
  if (!is_floating(elements.type))
    return fail(errc::unsupported, "operations on values need a floating-point dtype")
        .with_values("a floating-point dtype", std::string(name(elements.type)));
  std::array<double, piece_elements> piece, before;
  const std::int64_t count = numel(elements), item = item_bytes(elements.type);
  for (std::int64_t at = 0; at < count; at += piece_elements) {
    const extents sizes{std::min(piece_elements, count - at)};
    const tensor_view stored{elements.data + at * item, elements.type, elements.where, sizes, {1}};
    const tensor_view wide{reinterpret_cast<std::byte*>(piece.data()), dtype::float64, {}, sizes, {1}};
    SHARDMESH_TRY(copy_between(wide, stored));
    std::copy_n(piece.begin(), sizes[0], before.begin());
    for (std::int64_t i = 0; i < sizes[0]; ++i) {
      double& x = piece[static_cast<std::size_t>(i)];
      for (const value_step& step : steps) x = applied(step, x);
    }
    SHARDMESH_TRY(copy_between(stored, wide));
    SHARDMESH_TRY(copy_between(wide, stored));  // rounding to the dtype may also overflow
    for (std::int64_t i = 0; i < sizes[0]; ++i) {
      const auto e = static_cast<std::size_t>(i);
      if (std::isfinite(before[e]) && !std::isfinite(piece[e]))
        return not_finite(elements.sizes, at + i, before[e], piece[e]);
    }
  }
  return {};
}

}  // namespace shardmesh
