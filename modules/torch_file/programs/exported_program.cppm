// SPDX-License-Identifier: Apache-2.0
// Opens the weights of exported programs (.pt2 of torch.export.save), without reading or running their graphs. Not
// exported.
module shardmesh.torch_file:exported_program;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;
import shardmesh.checkpoint_core;

namespace shardmesh::torch_file {

// Returns whether torch.export wrote the archive. Releases since 2.9 store raw weights and a JSON list of them, 2.7 and
// 2.8 one torch.save archive per model, and older ones serialized_state_dict.pt.
bool is_exported_program(const zip_directory& directory);

// Opens the weights that the loaded program's `state_dict` would give. With several programs in one file, each has its
// name as a prefix. Notes name the contents that are not weights.
// \errors errc::bad_format, errc::out_of_bounds: inconsistent lists of weights; errc::unsupported: weights in another
//   form, or a package that holds only compiled code
// Source: torch.export.pt2_archive._package, torch.export.load
result<std::unique_ptr<checkpoint_reader>> open_exported_program(const std::filesystem::path& file,
                                                                 const open_options& options);

}  // namespace shardmesh::torch_file
