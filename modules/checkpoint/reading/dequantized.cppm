// SPDX-License-Identifier: Apache-2.0
// dequantized: a checkpoint whose quantized weights are seen as the numbers that they stand for. Not here: how blocks
// become numbers (block_sources), tensors of PyTorch's own quantized classes.
export module shardmesh.checkpoint:dequantized;

import shardmesh.std;
import shardmesh.core;
import shardmesh.catalog;

export namespace shardmesh {

/// What `dequantized` takes for granted, and what it checks.
struct dequantize_options {
  /// Rows and columns of the blocks of FP8 weights that share a scale.
  std::int64_t block_size = 128;
  /// Holds what is read against the checksums that there are of it, as `convert` does. `load` does not.
  bool check_sums = false;
};

/// `inner` with float32 tensors in the place of two kinds of quantized ones; everything else is as it was.
///
/// - FP8 blocks (DeepSeek-V3): `X.weight` of a float8 type and two dimensions, and `X.weight_scale_inv`, a floating
///   tensor with one number for each block; an element times its block's number, in float32.
/// - MXFP4 (gpt-oss): `X_blocks`, uint8 [..., groups, bytes], two E2M1 numbers in a byte, the low half first, and
///   `X_scales`, uint8 [..., groups], powers of two with a bias of 127. Seen as `X_blocks` [..., groups · bytes · 2].
///
/// The scales are no entries of the result. Any box can be read: only its elements' blocks are, in bounded memory. A
/// cast to another dtype behind this gives the same bits as PyTorch's reader with that `target_dtype`.
/// Scales that are missing or of another shape or dtype, and scales without a weight, are `problems()`, each naming key
/// and file.
/// \errors errc::invalid_argument for a block size below 1; errc::checksum_mismatch, errc::bad_format when sums are
///         checked and the record of them is damaged
/// Source: torch.distributed.checkpoint.quantized_hf_storage.QuantizedHuggingFaceStorageReader
result<std::unique_ptr<checkpoint_reader>> dequantized(std::unique_ptr<checkpoint_reader> inner,
                                                       const dequantize_options& options = {});

}  // namespace shardmesh
