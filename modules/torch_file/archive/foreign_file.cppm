// SPDX-License-Identifier: Apache-2.0
// Names files that people mistake for checkpoints, so that an error can name the kind of file. It does not read their
// contents. Not exported.
module shardmesh.torch_file:foreign_file;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;

namespace shardmesh::torch_file {

// Returns the error for a ZIP archive without torch.save's data.pkl (a .npz, a Keras archive, ...). `wanted` is the
// missing record's name.
error not_torch_archive(const zip_directory& directory, const std::string& wanted);

// Recognises files that are neither archives nor pickles by their first bytes; empty for unknown kinds.
std::optional<error> foreign_beginning(std::span<const std::byte> first);

// Returns the error for an archive whose pickle contains a tensor in pickle.dump's form.
error tensors_of_bare_pickle();

}  // namespace shardmesh::torch_file
