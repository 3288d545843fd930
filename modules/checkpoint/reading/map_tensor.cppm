// SPDX-License-Identifier: Apache-2.0
// map_tensor: tensors of a checkpoint where they lie in its files, without a copy. Not here: reading them (load).
export module shardmesh.checkpoint:map_tensor;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;
import shardmesh.catalog;

export namespace shardmesh {

/// How tensors are mapped.
struct map_options {
  /// Also tensors whose first byte is no multiple of what their dtype needs (items of DCP begin anywhere): elements of
  /// such a view are read with memcpy, or by our kernels, not through a pointer of their type.
  bool allow_unaligned = false;
};

/// A tensor, or a box of one, where it lies in a file: memory that is read from the file when it is touched, and must
/// not be written. Lives on without the reader and the map that it came from.
class mapped_tensor {
 public:
  mapped_tensor(const const_tensor_view& view, std::shared_ptr<const mapped_file> file)
      : view_(view), file_(std::move(file)) {}
  /// Valid while a copy of this lives. Of the box's sizes; strides are those of the file.
  const const_tensor_view& view() const { return view_; }
  /// Whether the file still has these bytes; errc::io when it became shorter, naming it. To touch bytes that the file
  /// has lost raises SIGBUS: no library can make that an error. Cost: one system call.
  result<void> check() const;

 private:
  const_tensor_view view_;
  std::shared_ptr<const mapped_file> file_;
};

/// Tensors of one checkpoint where they lie. Each file is mapped once, when the first of its tensors is asked for, and
/// stays mapped while a tensor of it lives, or this. Checksums are not compared (`verify` does). Thread-safe.
class tensor_map {
 public:
  /// `reader` must outlive this.
  explicit tensor_map(checkpoint_reader& reader, const map_options& options = {});
  ~tensor_map();
  tensor_map(tensor_map&&) noexcept;

  /// The whole tensor, or a box of it, in the global tensor's elements.
  /// \errors errc::missing_key with the nearest key that there is, errc::dtype_mismatch for the key of an object,
  ///   errc::shape_mismatch for a box that does not fit; errc::unsupported where the bytes do not lie in a file as they
  ///   are: a box that several chunks hold (it names one that can be mapped), compressed, of the other byte order,
  ///   lazily conjugated or negated, of an unknown representation; errc::unaligned, unless that is allowed; errc::io.
  ///   Each names key, file and box.
  /// Cost: opens the tensor's chunk (DCP: two small reads), and maps its file when it is the first of it. No element is
  ///   read.
  /// Source: safetensors.safe_open, which maps; torch.load(mmap=True)
  result<mapped_tensor> tensor(std::string_view key);
  result<mapped_tensor> tensor(std::string_view key, const box& where);

 private:
  struct state;
  std::unique_ptr<state> state_;
};

/// One tensor, or a box of it, as `tensor_map` gives it.
result<mapped_tensor> map_tensor(checkpoint_reader& reader, std::string_view key, const map_options& options = {});
result<mapped_tensor> map_tensor(checkpoint_reader& reader, std::string_view key, const box& where,
                                 const map_options& options = {});

}  // namespace shardmesh
