// SPDX-License-Identifier: Apache-2.0
// Not exported: names for files that are taken for checkpoints and are none, so that an error can say what a file is.
// Not here: reading any of them.
module shardmesh.torch_file:foreign_file;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;

namespace shardmesh::torch_file {

// The error of a ZIP archive without torch.save's data.pkl: a .pt2 of torch.export, a .npz, ... `wanted` is the record
// that is missing.
error not_torch_archive(const zip_directory& directory, const std::string& wanted);

// What the first bytes are those of, for files that are neither archives nor pickles; nothing when they say nothing.
std::optional<error> foreign_beginning(std::span<const std::byte> first);

// The error of a file that pickle.dump wrote: its tensors' bytes are pickles inside the pickle.
error tensors_of_bare_pickle();

}  // namespace shardmesh::torch_file
