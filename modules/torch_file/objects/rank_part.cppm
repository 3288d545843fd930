// SPDX-License-Identifier: Apache-2.0
// rank_part: what a pickled DTensor or ShardedTensor says: the whole tensor's dtype and shape, and which boxes of it
// lie in this file. Not here: the files of the other ranks (checkpoint).
export module shardmesh.torch_file:rank_part;

import shardmesh.std;
import shardmesh.core;
import shardmesh.pickle;
import :item;

export namespace shardmesh::torch_file {

/// A box of the whole tensor that this file holds, and where it lies in one of the item's tensors.
struct rank_piece {
  box where;
  std::size_t tensor = 0;  // index into the item's tensors
  extents local_offsets;
};

/// One rank's part of a tensor. A DTensor that is whole on every rank has one piece.
struct rank_part {
  dtype type = dtype::undefined;
  extents shape;  // of the whole tensor
  std::vector<rank_piece> pieces;
  bool requires_grad = false;
  std::int64_t ranks = 1;  // that the mesh or group has
  std::string holder;      // "DTensor on rank (1) of a mesh of [4]", for messages
};

/// Nothing for a value that is neither a DTensor nor a ShardedTensor. Releases since 2.0 are read.
/// \errors errc::unsupported, with what it is in the message: a Partial, a local tensor of a kind that we do not
///         expose, an order of shards that is not the mesh's; errc::bad_format for what contradicts itself: a local tensor of
///         another shape than its placement says, a coordinate outside of the mesh; errc::overflow
/// Source: torch.distributed.tensor.DTensor, torch.distributed._shard.sharded_tensor.ShardedTensor.__getstate__
result<std::optional<rank_part>> rank_part_of(const torch_file::item& item, const pickle::value& value);

/// Implemented by the reader of a .pt file.
class file_of_ranks {
 public:
  virtual ~file_of_ranks() = default;
  /// Ranks of the largest mesh or group that its tensors are shared in; 1 when none is shared.
  virtual std::int64_t ranks() const = 0;
};

}  // namespace shardmesh::torch_file
