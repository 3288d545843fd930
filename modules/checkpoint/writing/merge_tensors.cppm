// SPDX-License-Identifier: Apache-2.0
// Not exported: which tensors of a conversion are written once under the first of their keys (convert_options::merge).
module shardmesh.checkpoint:merge_tensors;

import shardmesh.std;
import shardmesh.core;
import shardmesh.catalog;
import :conversion;
import :convert;

namespace shardmesh {

// Drops the tensors that are merged into an earlier one, with a note for each. Equal bytes are read through `source`,
// once per tensor that has a partner of its dtype and shape; ties are known from the catalog.
result<void> merge_tensors(checkpoint_reader& reader, conversion& work, dedup how, chunk_source& source, int threads);

}  // namespace shardmesh
