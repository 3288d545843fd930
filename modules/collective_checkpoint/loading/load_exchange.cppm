// SPDX-License-Identifier: Apache-2.0
// Not exported: the moves of whole boxes that one rank of a load read for others. Rounds of pieces are in staged_round.
module shardmesh.collective_checkpoint:load_exchange;

import shardmesh.std;
import shardmesh.core;
import shardmesh.transfer;
import shardmesh.checkpoint_core;
import shardmesh.checkpoint;
import :load_share;
import :rank_requests;

namespace shardmesh {

// One entry per tensor. A rank lists its own boxes and those of its peers in them; a peer has an equal box.
struct load_exchange {
  std::vector<tensor_transfer> transfers;
  std::vector<std::string> keys;
  std::vector<const_tensor_binding> from;
  std::vector<tensor_binding> to;
  std::int64_t received_bytes = 0;  // by this rank
};

// Precondition: the requests have all parts of the share.
result<load_exchange> exchange_of(const load_share& share, const rank_requests& requests, const catalog& contents,
                                  std::int32_t rank);

// The bytes of a part in memory.
std::int64_t bytes_of(const load_request& part);

}  // namespace shardmesh
