// SPDX-License-Identifier: Apache-2.0
// dcp::rank_files: the ranks' files of a DCP folder while they are written: where items lie, their bytes and checksums;
// and the metadata that ends a folder. Not here: which folder (staged_output), who writes what (save,
// collective_checkpoint).
export module shardmesh.dcp:files;

import shardmesh.std;
import shardmesh.core;
import shardmesh.transfer;
import shardmesh.storage;
import shardmesh.catalog;
import shardmesh.torch_file;
import :metadata;

export namespace shardmesh::dcp {

/// "__3_0.distcp": the file that rank 3 writes.
std::string file_name(std::int32_t rank);

/// Gives items their places, in the order of the calls, and writes those of one rank or of all. Every process that
/// makes the same calls gets the same places, so ranks need not tell each other.
class rank_files {
 public:
  /// `only`: this process writes that rank's file; nothing: every file. `output` outlives it.
  explicit rank_files(staged_output& output, std::optional<std::int32_t> only = {}) : output_(output), only_(only) {}

  bool writes(std::int32_t rank) const { return !only_ || *only_ == rank; }
  /// The place of the next item of a rank; its file is created with the first. errc::overflow, errc::io.
  result<item_place> place(std::int32_t rank, std::int64_t length);
  /// A whole archive at its place, when this process writes that rank's file.
  result<void> write_archive(std::int32_t rank, const item_place& at, std::span<const std::byte> bytes);
  /// Gives each chunk of a tensor its place, and `bytes.to` the chunks that this process writes. Places are appended
  /// to `places()`.
  result<void> place_tensor(output_tensor& tensor);
  /// Writes the chunks that were placed. Call once, with the same tensors in the same order; those with an archive are
  /// left out.
  result<void> write_tensors(std::span<const output_tensor> tensors, element_source source,
                             const item_run_options& options);

  /// One per chunk, in order; further ones are the caller's.
  std::vector<item_place>& places() { return places_; }
  /// Of what this process wrote.
  const std::vector<checksum_range>& ranges() const { return ranges_; }
  /// Number of ranks that got a place.
  std::int64_t files() const { return static_cast<std::int64_t>(files_.size()); }
  /// Bytes of the elements of all chunks that were placed.
  std::int64_t data_bytes() const { return data_bytes_; }

 private:
  struct rank_file {
    std::int32_t number = -1;  // in the staged output; -1: another process writes it
    std::string name;
    std::int64_t size_bytes = 0;
  };
  result<rank_file*> file_of(std::int32_t rank);

  staged_output& output_;
  std::optional<std::int32_t> only_;
  std::map<std::int32_t, rank_file> files_;
  std::vector<torch_file::written_item> items_;
  std::vector<item_place> places_;
  std::vector<checksum_range> ranges_;
  std::int64_t data_bytes_ = 0;
};

/// Bytes of all chunks' elements: what the files will hold at least. Saturates.
std::int64_t data_bytes_of(std::span<const output_tensor> tensors);

/// Adds `.metadata`, the side files and the checksum record: all that a folder lacks before it is committed.
/// `ranges` are those of all items; the metadata's own is added.
result<void> finish_folder(staged_output& output, std::span<const output_tensor> tensors,
                           std::span<const output_object> objects, std::span<const item_place> places,
                           const dcp::extras& extras, std::vector<checksum_range> ranges);

}  // namespace shardmesh::dcp
