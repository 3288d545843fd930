// SPDX-License-Identifier: Apache-2.0
// `device`: the location of a tensor's memory.
#pragma once
#include <compare>
#include <cstdint>

namespace shardmesh {

/// The kind of memory of a device: PyTorch's device types, under PyTorch's names. The host itself reads and writes only
/// `cpu` memory (`check_host_memory`).
enum class device_type : std::uint8_t {
  cpu,   // host memory
  cuda,  // NVIDIA GPUs; also AMD GPUs in PyTorch for ROCm
  hip,   // AMD GPUs
  xpu,   // Intel GPUs
  mps,   // Apple GPUs
  hpu,   // Intel Gaudi
  meta,  // no memory: only sizes and a dtype
  other  // a type without a name here
};

/// A memory space: a type and an index (-1: the current device of that type, as in PyTorch's "cuda" without ":0").
struct device {
  device_type type = device_type::cpu;
  std::int16_t index = -1;
  friend constexpr auto operator<=>(const device&, const device&) = default;
};

}  // namespace shardmesh
