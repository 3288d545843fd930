// SPDX-License-Identifier: Apache-2.0
// device: where a tensor's memory is.
#pragma once
#include <compare>
#include <cstdint>

namespace shardmesh {

enum class device_type : std::uint8_t { cpu, cuda, hip, xpu, mps, hpu, meta, other };

/// A memory space: a type and an index (-1: the current one of that type, as PyTorch's "cuda" without ":0").
struct device {
  device_type type = device_type::cpu;
  std::int16_t index = -1;
  friend constexpr auto operator<=>(const device&, const device&) = default;
};

}  // namespace shardmesh
