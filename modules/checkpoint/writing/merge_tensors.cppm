// SPDX-License-Identifier: Apache-2.0
// Not exported: merges tensors of a conversion, which are then written once, under the first of their keys
// (convert_options::dedup).
module shardmesh.checkpoint:merge_tensors;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;
import :conversion;
import :convert;

namespace shardmesh {

// Drops the tensors that are merged into an earlier one, with a note for each. To find equal bytes, reads each tensor
// that has a partner of its dtype and shape once, through `source`. Ties are found without reading elements.
result<void> merge_tensors(checkpoint_reader& reader, conversion& work, dedup_rule how, chunk_source& source,
                           int threads);

}  // namespace shardmesh
