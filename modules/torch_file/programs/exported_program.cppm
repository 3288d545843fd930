// SPDX-License-Identifier: Apache-2.0
// Not exported: the weights of exported programs (.pt2 of torch.export.save). Not here: their graphs, which are neither
// read nor run.
module shardmesh.torch_file:exported_program;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;
import shardmesh.catalog;

namespace shardmesh::torch_file {

// The archive is one of torch.export: of 2.9 on (weights as they are, a list of them in JSON), of 2.7 and 2.8 (one
// archive of torch.save for each model in it), or older (serialized_state_dict.pt).
bool is_exported_program(const zip_directory& directory);

// What `state_dict` of the loaded program gives; with several programs in one file, each under its name. Notes say what
// of it is no weight.
// \errors errc::bad_format, errc::out_of_bounds: lists of weights that lie; errc::unsupported: weights in a form of their
//         own, a package of compiled code only
// Source: torch.export.pt2_archive._package, torch.export.load
result<std::unique_ptr<checkpoint_reader>> open_exported_program(const std::filesystem::path& file,
                                                                 const open_options& options);

}  // namespace shardmesh::torch_file
