// SPDX-License-Identifier: Apache-2.0
// planned_files: the .safetensors files of a destination: which tensor lies where in which of them, their headers, and
// what ends a folder. Not here: the tensors' bytes (save, collective_checkpoint), one file's layout (writer).
export module shardmesh.safetensors:files;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;
import shardmesh.catalog;
import :hf;
import :save;
import :writer;

export namespace shardmesh::safetensors {

/// One .safetensors file of a destination.
struct planned_file {
  std::string name;                  // within the folder; empty: the one file
  std::vector<std::size_t> tensors;  // numbers of the tensors given, in the order of the layout's `begins`
  file_layout layout;
};

/// Where a tensor's bytes begin.
struct tensor_place {
  std::size_t file = 0;    // which of the files
  std::int64_t begin = 0;  // absolute
};

/// Everything of a destination but its tensors' bytes. Equal arguments give equal plans, so ranks need not tell each
/// other. Made in two steps, since what the files say beside their tensors may depend on which tensors they have.
class planned_files {
 public:
  using texts = std::vector<std::pair<std::string, std::string>>;

  planned_files() = default;
  /// Deals the tensors out to files, in order. errc::overflow
  static result<planned_files> make(std::vector<tensor> tensors, const file_options& format);
  /// Lays every file out. `said`: what each file says of itself (none: nothing); `objects`: the document that the
  /// header of a single file holds, if any. \errors those of `layout_file`, naming the file in `destination`
  result<void> lay_out(std::span<const texts> said, std::string_view objects, const std::filesystem::path& destination);

  std::span<const tensor> tensors() const { return tensors_; }
  std::span<const planned_file> files() const { return files_; }
  /// After `lay_out`, of each tensor.
  tensor_place place_of(std::size_t tensor) const { return places_[tensor]; }
  std::int64_t bytes_of(std::size_t tensor) const;
  /// Of all tensors; of all files. Saturate.
  std::int64_t data_bytes() const;
  std::int64_t file_bytes() const;

  /// Adds the files to the output, empty: file i becomes its number i.
  result<void> add_to(staged_output& output) const;
  /// Writes the headers, with the tensors' sums in them: one per tensor.
  result<void> write_headers(staged_output& output, std::span<const digest128> sums);
  /// Of a folder: the objects' document (if any), the index (if any), side files and the checksum record. Call it last.
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
