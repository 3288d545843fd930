// SPDX-License-Identifier: Apache-2.0
// alike_readers: two checkpoints whose wrapping tensors (sparse, nested, quantized, torchao's) are seen in one way,
// whatever each format makes of them: for who compares the two. Not here: the comparison (diff).
export module shardmesh.checkpoint:alike_readers;

import shardmesh.std;
import shardmesh.catalog;

export namespace shardmesh {

/// The two readers that it was made of, which outlive it, except that objects that are one tensor are tensors, that
/// dicts and lists which one side keeps whole are flattened where the other has their entries, and,
/// where either side has a wrapping tensor whole, components of such tensors are put together on both. Components that
/// cannot be put together stay.
class alike_readers {
 public:
  /// Cost: as `torch_file::split_objects` and, where a side has wrapping tensors, `torch_file::wrap_components`.
  alike_readers(checkpoint_reader& left, checkpoint_reader& right);

  checkpoint_reader& left() const { return *left_; }
  checkpoint_reader& right() const { return *right_; }

 private:
  std::vector<std::unique_ptr<checkpoint_reader>> seen_;  // each shows one before it, or one that was given
  checkpoint_reader* left_;
  checkpoint_reader* right_;
};

}  // namespace shardmesh
