// SPDX-License-Identifier: Apache-2.0
// checkpoint: an opened checkpoint of any format as a value, which is what most programs need. Readers of one format,
// and calls that take a reader, are in rooms checkpoint and checkpoint_core.
export module shardmesh.state_checkpoint:checkpoint;

import shardmesh.std;
import shardmesh.core;
import shardmesh.fsdp;
import shardmesh.checkpoint;
import :load_sharded;
import :outline;
import :read_state_dict;

export namespace shardmesh {

/// An opened checkpoint of any format: a handle that is cheap to copy. Copies share one reader. Views (`select`,
/// `dequantized`) are also checkpoints, and keep the shown checkpoint open.
/// Every call that takes a `checkpoint_reader&` (`verify`, `diff`, `convert`, `reshard`, `load`) takes a checkpoint.
/// Source: safetensors.safe_open; torch.distributed.checkpoint.FileSystemReader
class checkpoint {
 public:
  /// Makes a handle to a reader of any kind. \pre the pointer is not null
  explicit checkpoint(std::shared_ptr<checkpoint_reader> reader) : reader_(std::move(reader)) {}

  /// Returns the path from which the checkpoint was opened.
  const std::filesystem::path& path() const { return reader_->path(); }
  checkpoint_format format() const { return reader_->contents().format; }

  /// Returns the key, dtype, shape, and chunks of every tensor. Valid while a copy of this handle lives.
  std::span<const tensor_entry> tensors() const { return reader_->contents().tensors; }
  /// Returns the entries that are not tensors. Valid while a copy of this handle lives.
  std::span<const object_entry> objects() const { return reader_->contents().objects; }
  /// Returns the tensor of this key, or null. Cost: O(1); the first call O(entries).
  const tensor_entry* find(std::string_view key) const { return reader_->contents().find(key); }

  /// Returns facts about the checkpoint that a user should know, one line each.
  std::span<const std::string> notes() const { return reader_->notes(); }
  /// Returns oddities that leave the checkpoint readable.
  std::span<const error> warnings() const { return reader_->warnings(); }
  /// Returns defects of single entries. The others can be read.
  std::span<const error> problems() const { return reader_->problems(); }

  /// Reads a whole tensor, or one box of it (in elements of the global tensor), into new memory of the stored dtype.
  /// \errors those of `shardmesh::load`, naming the key and the box
  result<host_tensor> load(std::string_view key, const load_options& options = {}) const {
    return load_tensor(*reader_, key, options);
  }
  result<host_tensor> load(std::string_view key, const box& where, const load_options& options = {}) const {
    return load_tensor(*reader_, key, where, options);
  }

  /// Reads a whole tensor, or one box of it, into a tensor of any framework, which decides the dtype.
  /// \param to  of the sizes of the stored tensor, or of the box; any strides
  /// \errors those of `shardmesh::load_into`
  template <local_tensor T>
  result<load_report> load_into(std::string_view key, T& to, const load_options& options = {}) const {
    return shardmesh::load_into(*reader_, key, to, options);
  }
  template <local_tensor T>
  result<load_report> load_into(std::string_view key, const box& where, T& to, const load_options& options = {}) const {
    return shardmesh::load_into(*reader_, key, where, to, options);
  }

  /// Maps a tensor, or one box of it, in place in its file: nothing is copied. The mapping outlives the handle.
  /// \errors those of `tensor_map::tensor`
  result<mapped_tensor> map(std::string_view key, const map_options& options = {}) const {
    return map_tensor(*reader_, key, options);
  }
  result<mapped_tensor> map(std::string_view key, const box& where, const map_options& options = {}) const {
    return map_tensor(*reader_, key, where, options);
  }

  /// Reads the value of an object, as JSON with tags (docs/formats.md).
  /// \errors errc::missing_key with a similar key in the hint; those of the reader
  result<object_value> object(std::string_view key) const;

  /// Reads everything into a new state dict: `read_state_dict`.
  template <allocatable_tensor T = host_tensor>
  result<shardmesh::state_dict<T>> state_dict(const read_state_options& options = {}) const {
    return read_state_dict<T>(*reader_, options);
  }
  /// Reads the part of `rank`, laid out over `mesh` by `rules`: `load_sharded`.
  template <allocatable_tensor T = host_tensor>
  result<shardmesh::state_dict<T>> state_dict(const device_mesh& mesh, std::span<const placement_rule> rules,
                                              std::int32_t rank, const load_sharded_options& options = {}) const {
    return load_sharded<T>(*reader_, mesh, rules, rank, options);
  }

  /// Returns a view of some entries, renamed where the selection renames them: `select_entries`.
  result<checkpoint> select(const selection_options& selection) const;
  /// Returns a view in which quantized weights are the float32 numbers that they represent: `shardmesh::dequantized`.
  result<checkpoint> dequantized(const dequantize_options& options = {}) const;

  /// Returns the reader that all copies of this handle share.
  checkpoint_reader& reader() const { return *reader_; }
  operator checkpoint_reader&() const { return *reader_; }  // NOLINT: implicit, so that every call takes a checkpoint

 private:
  std::shared_ptr<checkpoint_reader> reader_;
};

/// Opens a checkpoint of any format that `open_checkpoint` accepts.
/// \errors those of `open_checkpoint`
/// Cost: reads descriptions (metadata, headers), no tensor. `open(url, {.within = 30s})` limits its time.
result<checkpoint> open(const std::filesystem::path& path, const open_options& options = {});

}  // namespace shardmesh
