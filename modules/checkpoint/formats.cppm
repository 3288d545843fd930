// SPDX-License-Identifier: Apache-2.0
// The readers of the four formats. `open_checkpoint` chooses among them.
export module shardmesh.checkpoint:formats;

import shardmesh.std;
import shardmesh.core;
import :reader;

export namespace shardmesh {

/// A folder that torch.distributed.checkpoint wrote: `.metadata` (or `__N.metadata` of every rank) and `.distcp` files.
/// Reads the metadata only; items are opened when they are asked for.
/// \errors errc::incomplete_save without metadata; errc::bad_pickle, errc::bad_format, errc::unsafe_path for metadata
///         that cannot be used. Source: torch/distributed/checkpoint/{metadata,filesystem}.py
result<std::unique_ptr<checkpoint_reader>> open_dcp(const std::filesystem::path& folder,
                                                    const open_options& options = {});

/// A file that `torch.save` wrote, holding a state dict (nested at will). Keys are those that DCP would give.
result<std::unique_ptr<checkpoint_reader>> open_torch_file(const std::filesystem::path& file,
                                                           const open_options& options = {});

/// One safetensors file. Every check of its specification is made.
result<std::unique_ptr<checkpoint_reader>> open_safetensors(const std::filesystem::path& file,
                                                            const open_options& options = {});

/// A folder of safetensors files: with an index, without one, or sharded by PyTorch's HuggingFaceStorageWriter.
result<std::unique_ptr<checkpoint_reader>> open_hf(const std::filesystem::path& folder,
                                                   const open_options& options = {});

/// The file begins as a safetensors file does: a little-endian length that fits, then "{".
result<bool> looks_like_safetensors(const std::filesystem::path& file);

}  // namespace shardmesh
