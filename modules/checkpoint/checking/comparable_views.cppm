// SPDX-License-Identifier: Apache-2.0
// comparable_views: shows two checkpoints in comparable form. Wrapping tensors (sparse, nested, quantized, torchao's)
// look the same on both sides, in whatever form each format stores them. The comparison is in diff.
export module shardmesh.checkpoint:comparable_views;

import shardmesh.std;
import shardmesh.checkpoint_core;

export namespace shardmesh {

/// Comparable views of two readers, which must outlive this. An object that is a single tensor is shown as a tensor. A
/// dict or list that one side keeps whole is flattened where the other side has its entries. If either side has a whole
/// wrapping tensor, components of such tensors are recombined on both sides. Components that cannot be recombined stay.
class comparable_views {
 public:
  /// Cost: that of `torch_file::split_objects` and, if a side has wrapping tensors, of `torch_file::wrap_components`.
  comparable_views(checkpoint_reader& left, checkpoint_reader& right);

  checkpoint_reader& left() const { return *left_; }
  checkpoint_reader& right() const { return *right_; }

 private:
  std::vector<std::unique_ptr<checkpoint_reader>> seen_;  // each wraps the one before it, or a given reader
  checkpoint_reader* left_;
  checkpoint_reader* right_;
};

}  // namespace shardmesh
