// SPDX-License-Identifier: Apache-2.0
// Not exported: what of a source goes into a destination beside its entries: attributes of DCP metadata, texts, side
// files. Decided here for every target; what is left out is named in the notes.
module shardmesh.checkpoint:carried;

import shardmesh.std;
import shardmesh.core;
import shardmesh.catalog;
import shardmesh.dcp;
import shardmesh.safetensors;
import shardmesh.pickle;
import :conversion;
import :targets;

namespace shardmesh {

// For a DCP folder. Attributes that describe the old layout (plans of the ranks that saved) go when the layout changes:
// a trainer that trusted them would write a checkpoint that nobody can load. \errors errc::io
result<dcp::extras> carried_to_dcp(const checkpoint_reader& reader, std::span<const output_tensor> tensors,
                                   std::span<const output_object> objects, std::vector<std::string>& notes);

// Leaves out what goes into a DCP folder inside a side file, Megatron's common.pt. A note says so where the selection
// wants it otherwise.
void leave_to_side_files(const checkpoint_reader& reader, conversion& work);
// The entries of such a file against their checksums: it is copied as it is, under a new one.
std::vector<error> check_side_entries(checkpoint_reader& reader, int threads);

// For any target. The reader outlives the result. \errors errc::io
result<target_settings> carried_to(const target& to, const checkpoint_reader& reader, const conversion& work,
                                   std::vector<std::string>& notes);

}  // namespace shardmesh
