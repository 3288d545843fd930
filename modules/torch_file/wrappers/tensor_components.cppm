// SPDX-License-Identifier: Apache-2.0
// tensor_components: what a wrapping tensor of a checkpoint is made of, whether the checkpoint holds it whole or as
// its components: for who compares such tensors. Not here: readers that show them (component_reader, wrapped_reader).
export module shardmesh.torch_file:tensor_components;

import shardmesh.std;
import shardmesh.core;
import shardmesh.catalog;
import :component_reader;

export namespace shardmesh::torch_file {

/// The entries that a wrapping tensor `KEY` is made of: tensors `KEY.indices`, `KEY.values`, in the order of its class,
/// and the object `KEY.wrapper`.
struct tensor_components {
  checkpoint_reader* in = nullptr;
  std::vector<std::size_t> tensors;  // indices into its catalog; likewise `description`
  std::size_t description = 0;
};

/// Implemented by a checkpoint_reader whose wrapping tensors are put together of another's entries.
class assembled_tensors {
 public:
  virtual ~assembled_tensors() = default;
  /// Nothing where the tensor is not one of these. The result is valid as long as the reader.
  virtual std::optional<tensor_components> components_of(std::size_t tensor) const = 0;
};

/// The wrapping tensors of one checkpoint, which must outlive it.
class wrapping_tensors {
 public:
  /// \errors those of `unwrap_tensors`, and its cost
  static result<wrapping_tensors> open(checkpoint_reader& reader);

  /// `tensor`: index into the reader's catalog. Nothing for plain tensors, sharded wrappers, and classes and versions
  /// that we do not know. The result is valid as long as this.
  std::optional<tensor_components> components_of(std::size_t tensor) const;

 private:
  const assembled_tensors* assembled_ = nullptr;
  unwrapped_checkpoint unwrapped_;
};

}  // namespace shardmesh::torch_file
