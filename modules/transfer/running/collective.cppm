// SPDX-License-Identifier: Apache-2.0
// Not exported: transfers that are one collective of all ranks of the communicator, or of groups of as many ranks side
// by side (those along one dimension of a mesh): a Partial to what all of its ranks want (all_reduce) or to even blocks
// of the first dimension (reduce_scatter), such blocks to the whole of them (all_gather), one rank's box to others
// (broadcast). Not here: the collectives (comm).
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
  std::int32_t ranks = 0;             // that do it together: all, or those of a group
  std::optional<std::size_t> groups;  // index of `collective_plan::groups`; none: all ranks
  std::int32_t root = 0;              // of a broadcast, among them
  std::optional<fragment> held;       // this rank's; of a broadcast the root's alone
  fragment wanted;
  std::int64_t slab_bytes = 0;  // most bytes of one block that are given to one call

  // Blocks, one a rank, that a call sends and receives.
  std::int64_t sent() const { return kind == collective_kind::reduce_scatter ? ranks : 1; }
  std::int64_t received() const { return kind == collective_kind::all_gather ? ranks : 1; }
  // What is cut into slabs: a rank's block, or the whole.
  const extents& block() const { return kind == collective_kind::all_gather ? held->where.sizes : wanted.where.sizes; }
};

// The collectives of a plan, and the groups that some of them need: the number of each rank's.
struct collective_plan {
  std::vector<collective_use> uses;
  std::vector<std::vector<std::int32_t>> groups;
};

// Which collectives a plan may use.
struct collective_choice {
  bool reductions = false;  // in the communicator's own order of terms
  bool gathers = false;     // where they are a network's, and not made of messages
  bool groups = false;      // those of some of the ranks
};

// The transfers of a plan that one collective each can do, on a communicator of so many ranks: the same on every rank.
// Cost: O(transfers * ranks log ranks), for those that one of a few fragments a rank could be.
collective_plan collectives_in(const transfer_plan& plan, owner_id rank, std::int32_t ranks,
                               const collective_choice& choice);

}  // namespace shardmesh
