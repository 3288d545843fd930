// SPDX-License-Identifier: Apache-2.0
// Opens safetensors files and folders as checkpoints. A file's header is parsed in header.
export module shardmesh.safetensors:reader;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;

export namespace shardmesh::safetensors {

/// Opens one safetensors file. It makes every check of the format's specification.
result<std::unique_ptr<checkpoint_reader>> open(const std::filesystem::path& file, const open_options& options = {});

/// Opens a folder of safetensors files: with or without an index, or sharded by PyTorch's HuggingFaceStorageWriter.
result<std::unique_ptr<checkpoint_reader>> open_folder(const std::filesystem::path& folder,
                                                       const open_options& options = {});

/// Returns true when the file begins as a safetensors file does: a little-endian length that fits, then "{".
result<bool> looks_like_safetensors(const std::filesystem::path& file);

}  // namespace shardmesh::safetensors
