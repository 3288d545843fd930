// SPDX-License-Identifier: Apache-2.0
// payload_reader: a checkpoint whose tensors and objects lie each in a run of a file's bytes, as plain elements or as
// an archive of torch.save, where a manifest says. Formats derive from it. Not here: the manifests (exported_program,
// torchsnapshot).
export module shardmesh.torch_file:payload_reader;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import shardmesh.tree;
import shardmesh.storage;
import shardmesh.catalog;
import :archived_objects;

export namespace shardmesh::torch_file {

/// A chunk's bytes. Plain elements lie from the place's first byte on; strides and offset count elements.
struct tensor_payload {
  stored_range place;
  bool is_archive = false;  // of torch.save, whose root is the tensor
  extents strides;          // of plain elements; as many as the chunk has dimensions
  std::int64_t storage_offset = 0;
  std::uint32_t crc32 = 0;  // of plain elements; 0: none is known
};

/// What derives from it names its files (`contents_.files`), opens them, and adds what its manifest says.
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

  /// A run of a file; errc::out_of_bounds when the file is shorter. A length below 0: up to its end.
  virtual result<std::shared_ptr<const byte_source>> section(const stored_range& place) = 0;

  /// A tensor without chunks; those that follow are its own.
  void add_tensor(tensor_entry entry);
  /// A chunk of the last tensor.
  /// \errors errc::out_of_bounds, errc::overflow: a box outside of the tensor, elements outside of the payload;
  ///         errc::bad_format for strides that are not one per dimension, or negative
  result<void> add_chunk(const box& where, const tensor_payload& payload);
  /// An object that lies in an archive of its own.
  void add_object(std::string key, shardmesh::path where, const stored_range& place);
  /// An object that the manifest itself holds, as a complete archive.
  void add_object(std::string key, shardmesh::path where, std::vector<std::byte> archive);

  /// What tensors say of themselves beyond what is stored of them is counted here. After the last one.
  void check_expanded();

  std::shared_ptr<read_budget> budget_;

 private:
  result<opened_chunk> open_payload(const tensor_entry& tensor, std::int32_t chunk);
  result<opened_object> open_archive(std::shared_ptr<const byte_source> source, std::string place) const;
  error located(error e, const std::string& key, const stored_range& place) const;

  struct stored_object {
    stored_range place;
    std::shared_ptr<const std::vector<std::byte>> archive;  // null: it lies at `place`
  };
  std::vector<tensor_payload> payloads_;  // one per chunk
  std::vector<stored_object> objects_;    // one per object
  chunk_cache cache_;
  std::int32_t first_expanded_ = std::numeric_limits<std::int32_t>::max();
  std::optional<error> expanded_;
};

}  // namespace shardmesh::torch_file
