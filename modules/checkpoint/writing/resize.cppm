// SPDX-License-Identifier: Apache-2.0
// resize: shows some tensors of a checkpoint in other sizes, cut at the end or filled with zeros, for vocabularies that
// are padded for another number of ranks. The callers that choose shapes are load, convert, and reshard.
export module shardmesh.checkpoint:resize;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;
import :selection;

export namespace shardmesh {

/// A tensor that is shown in another shape than the stored one.
struct resized_tensor {
  std::string key;
  extents stored, wanted;
  friend bool operator==(const resized_tensor&, const resized_tensor&) = default;
};
/// "w: [6, 5] becomes [8, 4]: dimension 0 is filled with zeros from 6 on, dimension 1 is cut at 4"
std::string to_string(const resized_tensor& tensor);

/// Shows `inner`, which must outlive the result, with these tensors in their wanted shapes. A stored element keeps its
/// indices, indices that are not stored are zero, and elements outside the wanted shape are left out. Reads nothing.
/// \errors errc::missing_key; errc::shape_mismatch for another number of dimensions; errc::overflow; errc::unsupported
///         for representations without elements of their own, errc::unaligned for types smaller than a byte
/// Cost: O(entries + chunks). Source: megatron/core/dist_checkpointing, ShardedTensor.allow_shape_mismatch
result<std::unique_ptr<checkpoint_reader>> resize_tensors(checkpoint_reader& inner,
                                                          std::span<const resized_tensor> tensors);

/// Returns the tensors of `reader` whose shape differs from the tensor in `like` that has their new name under
/// `selection`.
std::vector<resized_tensor> shape_differences(const checkpoint_reader& reader, const selection_options& selection,
                                              const checkpoint_reader& like);

/// Shows `reader`, which must outlive the result, with those tensors resized, and adds a line to `notes` for each. Null
/// when there are none.
/// \errors those of `resize_tensors`
result<std::unique_ptr<checkpoint_reader>> resize_like(checkpoint_reader& reader, const selection_options& selection,
                                                       const checkpoint_reader& like, std::vector<std::string>& notes);

}  // namespace shardmesh
