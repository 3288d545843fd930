// SPDX-License-Identifier: Apache-2.0
// The components of a checkpoint's wrapping tensors, for comparing such tensors no matter whether the checkpoint stores
// them whole or as components. The readers that present either form are `component_reader` and `wrapped_reader`.
export module shardmesh.torch_file:tensor_components;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;
import :component_reader;

export namespace shardmesh::torch_file {

/// The entries of a wrapping tensor `KEY`: tensors `KEY.indices`, `KEY.values`, in the order of its class, and the
/// object `KEY.wrapper`.
struct tensor_components {
  checkpoint_reader* in = nullptr;
  std::vector<std::size_t> tensors;  // indices into its catalog, like `description`
  std::size_t description = 0;
};

/// Interface of checkpoint readers that assemble wrapping tensors from another reader's entries.
class assembled_tensors {
 public:
  virtual ~assembled_tensors() = default;
  /// Returns a tensor's components; empty when it is not assembled. The result is valid as long as the reader.
  virtual std::optional<tensor_components> components_of(std::size_t tensor) const = 0;
};

/// The wrapping tensors of one checkpoint, which must outlive this.
class wrapping_tensors {
 public:
  /// \errors those of `unwrap_tensors`; also its cost
  static result<wrapping_tensors> open(checkpoint_reader& reader);

  /// Returns the components of the tensor at index `tensor` of the reader's catalog. Empty for plain tensors, sharded
  /// wrappers, and unknown classes and versions. The result is valid for the lifetime of this object.
  std::optional<tensor_components> components_of(std::size_t tensor) const;

 private:
  const assembled_tensors* assembled_ = nullptr;
  unwrapped_checkpoint unwrapped_;
};

}  // namespace shardmesh::torch_file
