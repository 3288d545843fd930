// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <string>
module shardmesh.simulation;

namespace shardmesh {
namespace {

using std::chrono::nanoseconds;

constexpr std::int64_t of_second = 1'000'000'000;
constexpr nanoseconds longest = std::chrono::hours(1);

// Nanoseconds of a rest of less than a second, rounded up.
std::int64_t nanoseconds_of_rest(std::int64_t size_bytes, std::int64_t bytes_per_second) {
  const auto product = checked_multiply(size_bytes, of_second);
  if (product) return *product / bytes_per_second + (*product % bytes_per_second != 0 ? 1 : 0);
  // Beyond 9 GB, a rounding error of a nanosecond does not matter.
  return static_cast<std::int64_t>(
      std::ceil(static_cast<double>(size_bytes) / static_cast<double>(bytes_per_second) * 1e9));
}

result<void> check_time(nanoseconds length, const char* member) {
  if (length >= nanoseconds::zero() && length <= longest) return {};
  return fail(errc::invalid_argument, fmt::format("network_model::{} is out of range", member))
      .with_values("0 to 1 hour", fmt::format("{} ns", length.count()));
}

}  // namespace

nanoseconds network_model::transfer_time(std::int64_t size_bytes) const {
  const auto whole = checked_multiply(size_bytes / bytes_per_second, of_second);
  if (!whole) return nanoseconds::max();
  const std::int64_t rest = nanoseconds_of_rest(size_bytes % bytes_per_second, bytes_per_second);
  return nanoseconds(checked_add(*whole, rest).value_or(INT64_MAX));
}

nanoseconds network_model::all_gather_time(std::int32_t size, std::int64_t received_bytes) const {
  if (size <= 1) return nanoseconds::zero();
  const std::int64_t others = size - 1;
  const nanoseconds links = transfer_time(received_bytes);
  const nanoseconds last =
      std::max((others - 1) * overhead, std::min(links, nanoseconds::max() - 2 * overhead - latency));
  return std::max(2 * others * overhead, latency + 2 * overhead + last);
}

result<void> network_model::check() const {
  SHARDMESH_TRY(check_time(latency, "latency"));
  SHARDMESH_TRY(check_time(overhead, "overhead"));
  if (bytes_per_second >= 1) return {};
  return fail(errc::invalid_argument, "network_model::bytes_per_second is out of range")
      .with_values("1 or more", fmt::to_string(bytes_per_second));
}

}  // namespace shardmesh
