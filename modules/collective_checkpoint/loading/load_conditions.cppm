// SPDX-License-Identifier: Apache-2.0
// Not exported: the conditions of a load by many ranks that must be equal on all of them. The requests are compared in
// request_match.
module shardmesh.collective_checkpoint:load_conditions;

import shardmesh.std;
import shardmesh.comm;
import shardmesh.checkpoint_core;
import :load;

namespace shardmesh {

// Returns the options as text, for ranks to compare.
agreement_record condition_of(const rank_load_options& options);

// Returns the counts and a digest of the checkpoint's entries. Ranks that read for each other also compare the places
// of the chunks, because rank 0 assigns them by number.
agreement_record condition_of(const catalog& contents, read_sharing sharing);

}  // namespace shardmesh
