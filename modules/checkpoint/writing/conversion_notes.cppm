// SPDX-License-Identifier: Apache-2.0
// Not exported: notes of `convert` about entries that come into the destination changed, or cannot leave it again.
module shardmesh.checkpoint:conversion_notes;

import shardmesh.std;
import shardmesh.catalog;
import :conversion;

namespace shardmesh {

// Names tensors that cannot be converted any further. They are copied as archives of their own, which a file of
// torch.save does not have.
std::optional<std::string> note_of_dead_ends(checkpoint_reader& reader, const conversion& work);

// Names entries whose new name is one key, however nested the old one was.
std::optional<std::string> note_of_flat_names(const catalog& stored, const conversion& work);

}  // namespace shardmesh
