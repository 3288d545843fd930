// SPDX-License-Identifier: Apache-2.0
// Not exported: the ranks that keep each box of a step. Every rank computes the same answer from the same description,
// without messages.
module shardmesh.replicas:copy_placement;

import shardmesh.std;
import shardmesh.core;
import :described_part;

namespace shardmesh {

// The failure domains of a communicator, numbered in the order of their lowest ranks.
struct failure_domains {
  std::vector<std::size_t> of_rank;                // per rank, the number of its domain
  std::vector<std::vector<std::int32_t>> members;  // per domain, its ranks, ascending
};

// `names`: per rank, the name of its domain. \errors errc::invalid_argument for fewer domains than copies
result<failure_domains> number_domains(std::span<const std::string> names, std::int32_t copies);

// The ranks that keep a box, each in another domain. The first `own_copies` of them train with the box and copy it from
// their tensors; the others receive it.
struct box_keepers {
  std::vector<std::int32_t> ranks;
  std::size_t own_copies = 0;
};

// Chooses the keepers of each box, in the order of entries and boxes. Holders in different domains come first, those
// with the least to keep. If they are too few, ranks of the next domains follow in a ring: rank i of a domain copies to
// rank i of the next one. Few pairs of ranks thus share boxes, so that random losses seldom take all copies of a box.
std::vector<box_keepers> place_copies(const merged_parts& all, const failure_domains& domains, std::int32_t copies);

}  // namespace shardmesh
