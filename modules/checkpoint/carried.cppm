// SPDX-License-Identifier: Apache-2.0
// Not exported: what of a source goes into a destination beside its entries: attributes of DCP metadata, texts, side
// files. What is left out is named in the notes.
module shardmesh.checkpoint:carried;

import shardmesh.std;
import shardmesh.core;
import shardmesh.catalog;
import shardmesh.dcp;
import shardmesh.safetensors;
import shardmesh.pickle;
import :conversion;

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

// For a safetensors file (`folder` false) or a Hugging Face folder. The reader outlives the result. \errors errc::io
result<safetensors::file_options> carried_to_safetensors(const checkpoint_reader& reader,
                                                         std::span<const output_tensor> tensors, bool folder,
                                                         std::vector<std::string>& notes);

}  // namespace shardmesh
