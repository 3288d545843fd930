// SPDX-License-Identifier: Apache-2.0
// Not exported: the conditions under which a group of ranks can run a plan's transfers.
module shardmesh.transfer:group_check;

import shardmesh.std;
import shardmesh.core;
import :plan;

namespace shardmesh {

// Checks that the group of `size` ranks has every rank that holds something, and that the kernels have every reduction.
// `names`: of the transfers, in errors
// \errors errc::invalid_argument, errc::unsupported; each naming the transfer
result<void> check_transfers(const transfer_plan& plan, std::int32_t size, std::span<const std::string> names);

}  // namespace shardmesh
