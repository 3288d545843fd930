// SPDX-License-Identifier: Apache-2.0
// Resolves a shard's placement to a process, and checks it against a group. Room core parses and formats remote
// devices.
export module shardmesh.sharding:remote;

import shardmesh.std;
import shardmesh.transfer;

export namespace shardmesh {

/// A worker that placements can name, as PyTorch's RPC framework knows it.
struct remote_worker {
  std::string name;
  std::int32_t id = 0;
};

/// A resolved placement: a global rank or a worker's id (neither: this process), and a device there.
struct placed_device {
  std::optional<std::int32_t> rank, worker_id;
  device where;
  friend bool operator==(const placed_device&, const placed_device&) = default;
};

/// Resolves a placement in a group. A rank must be in the group, and a worker must be known. Processes inside and
/// outside the group get the same answer.
/// \errors errc::invalid_argument: no placement; a global rank outside the group (names both); a worker that is not in
///         `workers` (names it)
/// Cost: O(log group + workers). No communication.
/// Source: torch.distributed._shard.sharded_tensor.utils._parse_and_validate_remote_device, which checks nothing when
///         this process is not in the group
result<placed_device> parse_and_validate_remote_device(const rank_group& group,
                                                       const std::optional<remote_device>& placement,
                                                       std::span<const remote_worker> workers = {});

}  // namespace shardmesh
