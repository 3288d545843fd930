// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
module shardmesh.sharding;

namespace shardmesh {

result<placed_device> parse_and_validate_remote_device(const rank_group& group,
                                                       const std::optional<remote_device>& placement,
                                                       std::span<const remote_worker> workers) {
  if (!placement)
    return fail(errc::invalid_argument, "a shard has no remote device")
        .with_hint("give it a placement such as rank:0/cpu");
  placed_device found{placement->rank, std::nullopt, placement->where};
  if (placement->rank && !group.group_rank(*placement->rank))
    return fail(errc::invalid_argument,
                fmt::format("global rank {} does not exist in the process group", *placement->rank))
        .with_rank(*placement->rank)
        .with_values("one of " + to_string(group), std::to_string(*placement->rank));
  if (placement->worker.empty()) return found;
  const auto known = std::find_if(workers.begin(), workers.end(),
                                  [&](const remote_worker& worker) { return worker.name == placement->worker; });
  if (known != workers.end()) return found.worker_id = known->id, found;
  error e = fail(errc::invalid_argument, fmt::format("'{}' is not the name of a known worker", placement->worker))
                .with_values(fmt::format("one of {} workers", workers.size()), placement->worker);
  if (workers.empty()) e = std::move(e).with_hint("worker names need the list of workers (PyTorch: an RPC framework)");
  return e;
}

}  // namespace shardmesh
