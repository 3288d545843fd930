// SPDX-License-Identifier: Apache-2.0
// Decodes a pickled DTensor or ShardedTensor: the whole tensor's dtype and shape, and the boxes of the tensor that this
// file holds. The files of several ranks are combined in checkpoint.
export module shardmesh.torch_file:rank_part;

import shardmesh.std;
import shardmesh.core;
import shardmesh.pickle;
import :item;

export namespace shardmesh::torch_file {

/// A box of the whole tensor that this file holds, and its place in one of the item's tensors.
struct rank_piece {
  box where;
  std::size_t tensor = 0;  // index into the item's tensors
  extents local_offsets;
};

/// The part of a tensor that one rank holds. A fully replicated DTensor has one piece.
struct rank_part {
  dtype type = dtype::undefined;
  extents shape;  // of the whole tensor
  std::vector<rank_piece> pieces;
  bool requires_grad = false;
  std::int64_t ranks = 1;  // size of the mesh or group
  std::string holder;      // "DTensor on rank (1) of a mesh of [4]", for messages
};

/// Decodes a DTensor or ShardedTensor of any release since 2.0; empty for other values.
/// \errors errc::unsupported for a Partial, a local tensor of a kind that we do not expose, or an order of shards other
///   than the mesh's (the message names the cause); errc::bad_format for contradictions such as a coordinate outside
///   the mesh; errc::dtype_mismatch and errc::shape_mismatch for a local tensor that differs from its placement or
///   metadata; errc::out_of_bounds for a shard outside its tensor; errc::overflow
/// Source: torch.distributed.tensor.DTensor, torch.distributed._shard.sharded_tensor.ShardedTensor.__getstate__
result<std::optional<rank_part>> rank_part_of(const torch_file::item& item, const pickle::value& value);

/// Interface of the .pt reader.
class file_of_ranks {
 public:
  virtual ~file_of_ranks() = default;
  /// Returns the size of the largest mesh or group over which the file's tensors are sharded; 1 when there is none.
  virtual std::int64_t ranks() const = 0;
};

}  // namespace shardmesh::torch_file
