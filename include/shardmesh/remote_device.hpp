// SPDX-License-Identifier: Apache-2.0
// `remote_device`: a device of any process. It is in the global module, so that an adapter in another framework's
// header can return the placements of its shards without `import`.
#pragma once
#include <shardmesh/device.hpp>

#include <compare>
#include <cstdint>
#include <optional>
#include <string>

namespace shardmesh {

/// A device of a process, named by rank, by worker name, or by neither (a device of this process).
/// Source: torch.distributed.remote_device.
struct remote_device {
  std::optional<std::int32_t> rank;
  std::string worker;  // empty: none
  device where;
  friend auto operator<=>(const remote_device&, const remote_device&) = default;
};

}  // namespace shardmesh
