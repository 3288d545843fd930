// SPDX-License-Identifier: Apache-2.0
// Not exported: names for files that are taken for checkpoints and are none, so that an error can say what a file is.
// Not here: reading any of them.
module shardmesh.torch_file:foreign_file;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;

namespace shardmesh::torch_file {

// The error of a ZIP archive without torch.save's data.pkl: a .npz, an archive of Keras, ... `wanted` is the record
// that is missing.
error not_torch_archive(const zip_directory& directory, const std::string& wanted);

// What the first bytes are those of, for files that are neither archives nor pickles; nothing when they say nothing.
std::optional<error> foreign_beginning(std::span<const std::byte> first);

// The error of an archive in whose pickle a tensor lies as pickle.dump writes it.
error tensors_of_bare_pickle();

}  // namespace shardmesh::torch_file
