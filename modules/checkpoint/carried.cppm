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

namespace shardmesh {

// For a DCP folder. Attributes that describe the old layout (plans of the ranks that saved) go when the layout changes:
// a trainer that trusted them would write a checkpoint that nobody can load. \errors errc::io
result<dcp::extras> carried_to_dcp(const checkpoint_reader& reader, std::span<const output_tensor> tensors,
                                   std::span<const output_object> objects, std::vector<std::string>& notes);

// For a safetensors file (`folder` false) or a Hugging Face folder. The reader outlives the result. \errors errc::io
result<safetensors::file_options> carried_to_safetensors(const checkpoint_reader& reader,
                                                         std::span<const output_tensor> tensors, bool folder,
                                                         std::vector<std::string>& notes);

}  // namespace shardmesh
