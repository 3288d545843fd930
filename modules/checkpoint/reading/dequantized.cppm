// SPDX-License-Identifier: Apache-2.0
// dequantized: shows quantized weights of a checkpoint as float32 numbers. The conversion of blocks is in
// quantized_sources. Tensors of PyTorch's own quantized classes are not handled here.
export module shardmesh.checkpoint:dequantized;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;

export namespace shardmesh {

/// The block size that `dequantized` assumes, and whether it compares checksums.
struct dequantize_options {
  /// Rows and columns of an FP8 block, all of whose elements share one scale.
  std::int64_t block_size = 128;
  /// Compares the data with its checksums, where there are any, as `convert` does. `load` does not.
  bool check_sums = false;
};

/// Shows `inner` with float32 tensors in place of two kinds of quantized ones. Everything else is unchanged.
///
/// - FP8 blocks (DeepSeek-V3): `X.weight` of a float8 type and two dimensions, and `X.weight_scale_inv`, a floating
///   tensor with one number per block. An element is multiplied by its block's number, in float32.
/// - MXFP4 (gpt-oss): `X_blocks`, uint8 [..., groups, bytes], with two E2M1 numbers per byte, the low half first; and
///   `X_scales`, uint8 [..., groups], powers of two with a bias of 127. Shown as `X_blocks` [..., groups · bytes · 2].
///
/// The result has no entries for the scales. Any box can be read, in bounded memory: only the blocks of its elements
/// are read. Casting the result to another dtype gives the same bits as PyTorch's reader with that `target_dtype`.
/// Scales that are missing or have another shape or dtype, and scales without a weight, are `problems()`, each naming
/// the key and the file.
/// \errors errc::invalid_argument for a block size below 1; errc::checksum_mismatch, errc::bad_format when checksums
///         are compared and the record of them is damaged
/// Source: torch.distributed.checkpoint.quantized_hf_storage.QuantizedHuggingFaceStorageReader
result<std::unique_ptr<checkpoint_reader>> dequantized(std::unique_ptr<checkpoint_reader> inner,
                                                       const dequantize_options& options = {});

}  // namespace shardmesh
