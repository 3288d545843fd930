// SPDX-License-Identifier: Apache-2.0
// `planned_files` plans the .safetensors files of a destination: the place of every tensor, the headers, and the files
// that complete a folder. Writing the tensors' bytes is in save and collective_checkpoint; one file's layout is in
// writer.
export module shardmesh.safetensors:files;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;
import shardmesh.checkpoint_core;
import :hf;
import :save;
import :writer;

export namespace shardmesh::safetensors {

/// One .safetensors file of a destination.
struct planned_file {
  std::string name;                  // within the folder; empty for a single file
  std::vector<std::size_t> tensors;  // indices of the given tensors, in the order of the layout's `begins`
  file_layout layout;
};

/// The place where a tensor's bytes begin.
struct tensor_place {
  std::size_t file = 0;    // index of the file
  std::int64_t begin = 0;  // absolute offset
};

/// The plan of a destination: everything except its tensors' bytes. Equal arguments give equal plans, so ranks need not
/// exchange them. A plan is made in two steps, because a file's metadata may depend on its tensors.
class planned_files {
 public:
  using texts = std::vector<std::pair<std::string, std::string>>;

  planned_files() = default;
  /// Distributes the tensors over files, in order. errc::overflow
  static result<planned_files> make(std::vector<tensor> tensors, const file_options& format);
  /// Lays out every file.
  ///
  /// \param said     each file's own metadata; empty when no file has any
  /// \param objects  the objects' document for the header of a single file; empty when there is none
  /// \errors those of `layout_file`, naming the file in `destination`
  result<void> lay_out(std::span<const texts> said, std::string_view objects, const std::filesystem::path& destination);

  std::span<const tensor> tensors() const { return tensors_; }
  std::span<const planned_file> files() const { return files_; }
  /// Returns a tensor's place. Call it after `lay_out`.
  tensor_place place_of(std::size_t tensor) const { return places_[tensor]; }
  std::int64_t bytes_of(std::size_t tensor) const;
  /// Return the bytes of all tensors, and of all files. Both saturate.
  std::int64_t data_bytes() const;
  std::int64_t file_bytes() const;

  /// Adds the files to the output, which must be empty: file i gets number i.
  result<void> add_to(staged_output& output) const;
  /// Writes the headers with the tensors' checksums, one per tensor.
  result<void> write_headers(staged_output& output, std::span<const digest128> sums);
  /// Finishes a folder: writes the objects' document (if any), the index (if any), side files, and the checksum record.
  /// Call it last.
  result<void> finish_folder(staged_output& output, std::string_view objects, std::span<const side_file> side_files);

 private:
  result<void> add_text(staged_output& output, std::string_view name, std::string_view text);

  std::vector<tensor> tensors_;
  bool is_folder_ = false;
  std::string stem_;
  hf_shard_plan shards_;
  std::vector<planned_file> files_;
  std::vector<tensor_place> places_;
  std::vector<checksum_range> ranges_;
};

}  // namespace shardmesh::safetensors
