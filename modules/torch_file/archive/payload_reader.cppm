// SPDX-License-Identifier: Apache-2.0
// Base of readers whose manifest places each tensor and object in a range of a file, as plain elements or as a
// torch.save archive. The manifests are in the derived readers: exported_program and torchsnapshot.
export module shardmesh.torch_file:payload_reader;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import shardmesh.tree;
import shardmesh.storage;
import shardmesh.checkpoint_core;
import :archived_objects;

export namespace shardmesh::torch_file {

/// The bytes of a chunk. Plain elements begin at the place's first byte; strides and offset count elements.
struct tensor_payload {
  stored_range place;
  bool is_archive = false;  // of torch.save; its root is the tensor
  extents strides;          // of plain elements, one per dimension of the chunk
  std::int64_t storage_offset = 0;
  std::uint32_t crc32 = 0;  // of plain elements; 0 when unknown
};

/// A derived reader names its files (`contents_.files`), opens them, and adds the entries of its manifest.
class payload_reader : public checkpoint_reader, public archived_objects {
 public:
  result<std::shared_ptr<const opened_chunk>> open_chunk(const tensor_entry& tensor, std::int32_t chunk) override;
  result<object_value> read_object(std::size_t index) override;
  result<std::vector<std::byte>> object_archive(std::size_t index) override;
  result<opened_object> open_object(std::size_t index) override;
  result<std::vector<std::byte>> chunk_archive(const tensor_entry& tensor, std::int32_t chunk) override;
  check_outcome check_whole(std::span<const whole_entry> entries, const check_options& options) override;
  result<std::optional<digest128>> content_of(const whole_entry& entry) override;
  void identify_opaque_tensors() override;

 protected:
  payload_reader(checkpoint_format format, std::filesystem::path path, const open_options& options);

  /// Opens a range of a file. A negative length means up to the end of the file.
  /// \errors errc::out_of_bounds when the file is shorter
  virtual result<std::shared_ptr<const byte_source>> section(const stored_range& place) = 0;

  /// Adds a tensor without chunks. The chunks added next belong to it.
  void add_tensor(tensor_entry entry);
  /// Adds a chunk to the last tensor.
  /// \errors errc::out_of_bounds, errc::overflow: a box outside the tensor, elements outside the payload;
  ///   errc::bad_format for negative strides or a number of strides that is not the number of dimensions
  result<void> add_chunk(const box& where, const tensor_payload& payload);
  /// Adds an object that is an archive of its own.
  void add_object(std::string key, shardmesh::path where, const stored_range& place);
  /// Adds an object that the manifest itself holds, as a complete archive.
  void add_object(std::string key, shardmesh::path where, std::vector<std::byte> archive);

  /// Charges the budget for the elements that tensors declare beyond their stored bytes. Call after the last tensor.
  void check_expanded();

  std::shared_ptr<read_budget> budget_;

 private:
  result<opened_chunk> open_payload(const tensor_entry& tensor, std::int32_t chunk);
  result<opened_object> open_archive(std::shared_ptr<const byte_source> source, std::string place) const;
  error located(error e, const std::string& key, const stored_range& place) const;
  void identify(tensor_entry& tensor);

  struct stored_object {
    stored_range place;
    std::shared_ptr<const std::vector<std::byte>> archive;  // null when the object lies at `place`
  };
  std::vector<tensor_payload> payloads_;  // one per chunk
  std::vector<stored_object> objects_;    // one per object
  chunk_cache cache_;
  std::int32_t first_expanded_ = std::numeric_limits<std::int32_t>::max();
  std::optional<error> expanded_;
  bool is_identified_ = false;  // whether `identify_opaque_tensors` has opened every archive
};

}  // namespace shardmesh::torch_file
