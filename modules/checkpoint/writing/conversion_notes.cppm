// SPDX-License-Identifier: Apache-2.0
// Not exported: notes of `convert` about entries that change on the way, or that cannot be converted any further.
module shardmesh.checkpoint:conversion_notes;

import shardmesh.std;
import shardmesh.checkpoint_core;
import :conversion;

namespace shardmesh {

// Names tensors that are copied whole, as archives of their own, and cannot be converted any further from the
// destination: inside a file of torch.save, a tensor has no such archive.
std::optional<std::string> note_of_dead_ends(checkpoint_reader& reader, const conversion& work);

// Names entries that were nested and that a rename gave a single, flat key.
std::optional<std::string> note_of_flat_names(const catalog& stored, const conversion& work);

}  // namespace shardmesh
