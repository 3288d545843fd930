// SPDX-License-Identifier: Apache-2.0
// Not exported: compares the entries that ranks request with those of the checkpoint. Rank 0 alone does this, and tells
// the others. load_assignment chooses the readers.
module shardmesh.collective_checkpoint:request_match;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;
import shardmesh.checkpoint;
import :load;
import :rank_state;

namespace shardmesh {

struct request_match {
  load_report report;                          // keys and casts; no bytes
  std::vector<bool> is_there;                  // per requested tensor, in the checkpoint
  std::vector<std::ptrdiff_t> stored_objects;  // per requested object, its index in the catalog; -1: missing
};

// Takes the problems out of `all`.
// \errors all problems of all keys, first those in which ranks contradict each other
// Cost: O(requested and stored entries).
result<request_match> match_requests(merged_state& all, const checkpoint_reader& reader,
                                     const rank_load_options& options);

}  // namespace shardmesh
