// SPDX-License-Identifier: Apache-2.0
// Not exported: chooses the metadata that goes from a source to a destination beside the entries: attributes of DCP
// metadata, texts, and side files. It decides for every target, and the notes name the metadata that is left out.
module shardmesh.checkpoint:sidecar_metadata;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;
import shardmesh.dcp;
import shardmesh.safetensors;
import shardmesh.pickle;
import :conversion;
import :targets;

namespace shardmesh {

// Collects the metadata for a DCP folder. Attributes that describe the old layout (plans of the ranks that saved) are
// dropped when the layout changes. A trainer that trusted them would write a checkpoint that no program can load.
// \errors errc::io
result<dcp::extras> carried_to_dcp(const checkpoint_reader& reader, std::span<const output_tensor> tensors,
                                   std::span<const output_object> objects, std::vector<std::string>& notes);

// Drops the entries that reach a DCP folder inside a side file, Megatron's common.pt. A note lists the entries among
// them that the selection would change, because the file is copied unchanged.
void leave_to_side_files(const checkpoint_reader& reader, conversion& work);
// Compares the entries of common.pt with their checksums, because the copy gets a new checksum.
std::vector<error> check_side_entries(checkpoint_reader& reader, int threads);

// Collects the metadata for any target. The reader must outlive the result.
// \errors errc::io
result<target_settings> carried_to(const target& to, const checkpoint_reader& reader, const conversion& work,
                                   std::vector<std::string>& notes);

}  // namespace shardmesh
