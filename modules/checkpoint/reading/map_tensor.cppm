// SPDX-License-Identifier: Apache-2.0
// map_tensor: maps tensors of a checkpoint from its files into memory, without a copy. Reading them is in load.
export module shardmesh.checkpoint:map_tensor;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;
import shardmesh.checkpoint_core;

export namespace shardmesh {

/// Options for mapping tensors.
struct map_options {
  /// Also maps tensors whose first byte is not aligned for their dtype (items of DCP begin anywhere). Elements of such
  /// a view are read with memcpy or by our kernels, not through a pointer of their type.
  bool allow_unaligned = false;
};

/// A tensor, or a box of one, mapped from a file. The memory is read from the file when it is touched, and must not be
/// written. It outlives the reader and the map that it came from.
class mapped_tensor {
 public:
  mapped_tensor(const const_tensor_view& view, std::shared_ptr<const mapped_file> file)
      : view_(view), file_(std::move(file)) {}
  /// The mapped elements, valid while this object or a copy of it lives. The sizes are the box's; the strides are those
  /// in the file.
  const const_tensor_view& view() const { return view_; }
  /// Checks that the file still has these bytes; errc::io, naming the file, when it became shorter. Touching bytes that
  /// the file has lost raises SIGBUS, which no library can turn into an error. Cost: one system call.
  result<void> check() const;

 private:
  const_tensor_view view_;
  std::shared_ptr<const mapped_file> file_;
};

/// Maps the tensors of one checkpoint. A file is mapped once, for the first of its tensors, and stays mapped while this
/// map or one of its tensors lives. Checksums are not compared (`verify` does that). Thread-safe.
class tensor_map {
 public:
  /// `reader` must outlive this.
  explicit tensor_map(checkpoint_reader& reader, const map_options& options = {});
  ~tensor_map();
  tensor_map(tensor_map&&) noexcept;

  /// Maps the whole tensor, or a box of it, in elements of the global tensor.
  /// \errors errc::missing_key with the nearest key, errc::dtype_mismatch for the key of an object,
  ///         errc::shape_mismatch for a box that does not fit; errc::unsupported where the file has no plain copy of
  ///         the elements: several chunks hold the box (the message names one that can be mapped), or it is compressed,
  ///         in the other byte order, lazily conjugated or negated, or of an unknown representation; errc::gap for a
  ///         tensor without chunks; errc::unaligned, unless that is allowed; errc::io. Each names the key, the file,
  ///         and the box.
  /// Cost: opens the tensor's chunk (DCP: two small reads), and maps its file if no tensor has mapped it yet. Reads no
  /// element.
  /// Source: safetensors.safe_open, which maps; torch.load(mmap=True)
  result<mapped_tensor> tensor(std::string_view key);
  result<mapped_tensor> tensor(std::string_view key, const box& where);

 private:
  struct state;
  std::unique_ptr<state> state_;
};

/// Maps one tensor, or a box of it, as `tensor_map` does.
result<mapped_tensor> map_tensor(checkpoint_reader& reader, std::string_view key, const map_options& options = {});
result<mapped_tensor> map_tensor(checkpoint_reader& reader, std::string_view key, const box& where,
                                 const map_options& options = {});

}  // namespace shardmesh
