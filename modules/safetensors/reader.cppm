// SPDX-License-Identifier: Apache-2.0
// reader: safetensors files and folders of them as checkpoints. Not here: the header (header).
export module shardmesh.safetensors:reader;

import shardmesh.std;
import shardmesh.core;
import shardmesh.catalog;

export namespace shardmesh::safetensors {

/// One safetensors file. Every check of its specification is made.
result<std::unique_ptr<checkpoint_reader>> open(const std::filesystem::path& file, const open_options& options = {});

/// A folder of safetensors files: with an index, without one, or sharded by PyTorch's HuggingFaceStorageWriter.
result<std::unique_ptr<checkpoint_reader>> open_folder(const std::filesystem::path& folder,
                                                       const open_options& options = {});

/// The file begins as a safetensors file does: a little-endian length that fits, then "{".
result<bool> looks_like_safetensors(const std::filesystem::path& file);

}  // namespace shardmesh::safetensors
