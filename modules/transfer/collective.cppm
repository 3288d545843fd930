// SPDX-License-Identifier: Apache-2.0
// Not exported: transfers that are a collective of the whole communicator: Partial over all ranks to Replicate
// (all_reduce), or to even shards of the first dimension (reduce_scatter). Not here: the collectives (comm).
module shardmesh.transfer:collective;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import :plan;

namespace shardmesh {

struct collective_use {
  std::size_t transfer = 0;
  bool scatters = false;  // reduce_scatter; else all_reduce
  reduce_op op = reduce_op::none;
  fragment held, wanted;  // this rank's
};

// The transfers of a plan that one collective each can do, on a communicator of so many ranks: the same on every rank.
// Cost: O(transfers * ranks), for those with terms only.
std::vector<collective_use> collectives_in(const transfer_plan& plan, owner_id rank, std::int32_t ranks);

// Most bytes of a tensor given to one collective: its sums and messages take a few times as much.
std::int64_t collective_bytes(const transfer_plan& plan);

}  // namespace shardmesh
