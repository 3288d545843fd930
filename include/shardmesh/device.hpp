// SPDX-License-Identifier: Apache-2.0
// device: where a tensor's memory is.
#pragma once
#include <compare>
#include <cstdint>

namespace shardmesh {

/// What kind of memory a device has: PyTorch's device types, by their names there. The host itself reads and writes
/// `cpu` alone (`check_host_memory`).
enum class device_type : std::uint8_t {
  cpu,   // host memory
  cuda,  // NVIDIA GPUs; PyTorch for ROCm says it of AMD GPUs, too
  hip,   // AMD GPUs
  xpu,   // Intel GPUs
  mps,   // Apple GPUs
  hpu,   // Intel Gaudi
  meta,  // no memory: sizes and a dtype alone
  other  // a type that has no name here
};

/// A memory space: a type and an index (-1: the current one of that type, as PyTorch's "cuda" without ":0").
struct device {
  device_type type = device_type::cpu;
  std::int16_t index = -1;
  friend constexpr auto operator<=>(const device&, const device&) = default;
};

}  // namespace shardmesh
