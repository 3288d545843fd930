// SPDX-License-Identifier: Apache-2.0
// Not exported: transfers that are a collective of the whole communicator: Partial over all ranks to Replicate
// (all_reduce) or to even shards of the first dimension (reduce_scatter), such shards to Replicate (all_gather), one
// rank's tensor to Replicate (broadcast). Not here: the collectives (comm).
module shardmesh.transfer:collective;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import :plan;

namespace shardmesh {

enum class collective_kind : std::uint8_t { all_reduce, reduce_scatter, all_gather, broadcast };

struct collective_use {
  std::size_t transfer = 0;
  collective_kind kind = collective_kind::all_reduce;
  reduce_op op = reduce_op::none;
  std::int32_t root = 0;         // of a broadcast
  std::optional<fragment> held;  // this rank's; of a broadcast the root's alone
  fragment wanted;
  std::int64_t slab_bytes = 0;  // most bytes of one block that are given to one call

  // Blocks, one a rank, that a call sends and receives.
  std::int64_t sent(std::int32_t ranks) const { return kind == collective_kind::reduce_scatter ? ranks : 1; }
  std::int64_t received(std::int32_t ranks) const { return kind == collective_kind::all_gather ? ranks : 1; }
  // What is cut into slabs: a rank's block, or the whole.
  const extents& block() const { return kind == collective_kind::all_gather ? held->where.sizes : wanted.where.sizes; }
};

// Which collectives a plan may use.
struct collective_choice {
  bool reductions = false;  // in the communicator's own order of terms
  bool gathers = false;     // where they are a network's, and not made of messages
};

// The transfers of a plan that one collective each can do, on a communicator of so many ranks: the same on every rank.
// Cost: O(transfers * ranks), for those that one of a few fragments a rank could be.
std::vector<collective_use> collectives_in(const transfer_plan& plan, owner_id rank, std::int32_t ranks,
                                           const collective_choice& choice);

}  // namespace shardmesh
