// SPDX-License-Identifier: Apache-2.0
// Recognises transfers that one collective can do. The collective runs over all ranks, or in each of several groups of
// equal size, such as those along one mesh dimension. A Partial becomes its value on all of its ranks (all_reduce), or
// equal blocks of the first dimension (reduce_scatter). Equal blocks become the whole (all_gather). One rank's box goes
// to others (broadcast). The collectives themselves are in comm. Exports nothing.
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
  std::int32_t ranks = 0;             // number of ranks in the collective: all, or those of a group
  std::optional<std::size_t> groups;  // index into `collective_plan::groups`; none: all ranks
  std::int32_t root = 0;              // of a broadcast: the root's number in the group
  std::optional<fragment> held;       // this rank's; in a broadcast, only the root has one
  fragment wanted;
  std::int64_t slab_bytes = 0;  // most bytes of one block that one call gets

  // Number of blocks, one per rank, that a call sends or receives.
  std::int64_t sent() const { return kind == collective_kind::reduce_scatter ? ranks : 1; }
  std::int64_t received() const { return kind == collective_kind::all_gather ? ranks : 1; }
  // The block that is cut into slabs: a rank's block for gathers, otherwise the whole.
  const extents& block() const { return kind == collective_kind::all_gather ? held->where.sizes : wanted.where.sizes; }
};

// The collectives of a plan, and the groups of ranks that some of them need. A group list gives each rank's group
// number.
struct collective_plan {
  std::vector<collective_use> uses;
  std::vector<std::vector<std::int32_t>> groups;
};

// The collectives that a plan may use.
struct collective_choice {
  bool reductions = false;  // reductions, in the communicator's own order of terms
  bool gathers = false;     // gathers and broadcasts; set if the network implements them
  bool groups = false;      // collectives among some of the ranks
};

// Finds the transfers of a plan that a single collective can do, on a communicator of `ranks` ranks. The result is the
// same on every rank. Cost: O(transfers * ranks log ranks), counting only transfers with few fragments per rank.
collective_plan collectives_in(const transfer_plan& plan, owner_id rank, std::int32_t ranks,
                               const collective_choice& choice);

}  // namespace shardmesh
