// SPDX-License-Identifier: Apache-2.0
// The ranks' files of a DCP folder while they are written: places, bytes, and checksums of items. This partition also
// adds the metadata that completes a folder. The folder itself is in `staged_output`; `save` and
// `collective_checkpoint` decide which rank writes what.
export module shardmesh.dcp:files;

import shardmesh.std;
import shardmesh.core;
import shardmesh.transfer;
import shardmesh.storage;
import shardmesh.checkpoint_core;
import shardmesh.torch_file;
import :metadata;
import :previous;

export namespace shardmesh::dcp {

/// Returns the name of a rank's file: "__3_0.distcp" for rank 3.
std::string file_name(std::int32_t rank);

/// Assigns places to items, in the order of the calls, and writes the items of one rank or of all. Processes that make
/// the same calls get the same places, so that ranks need not communicate.
class rank_files {
 public:
  /// `only`: the rank whose file this process writes; nothing: every file. `output` must outlive this object.
  /// `referred`: chunks that are not written, because an earlier checkpoint holds them.
  explicit rank_files(staged_output& output, std::optional<std::int32_t> only = {}, referred_items referred = {})
      : output_(output), only_(only), referred_(std::move(referred)) {}

  bool writes(std::int32_t rank) const { return !only_ || *only_ == rank; }
  /// Returns the place of a rank's next item. The first item creates the rank's file.
  /// \errors errc::overflow, errc::io
  result<item_place> place(std::int32_t rank, std::int64_t length);
  /// Writes a whole archive at its place, when this process writes that rank's file.
  result<void> write_archive(std::int32_t rank, const item_place& at, std::span<const std::byte> bytes);
  /// Assigns a place to each chunk of a tensor, and sets `bytes.to` to the chunks that this process writes. Appends the
  /// places to `places()`. The place of a referred chunk is that of its item.
  result<void> place_tensor(output_tensor& tensor);
  /// Writes the placed chunks. Call it once, with the same tensors in the same order; tensors with an archive are
  /// skipped. Referred chunks count as progress.
  result<void> write_tensors(std::span<const output_tensor> tensors, element_source source,
                             const item_run_options& options);

  /// Returns the places: one per chunk, in order. The caller may append further ones.
  std::vector<item_place>& places() { return places_; }
  /// Returns the checksums of what this process wrote.
  const std::vector<checksum_range>& ranges() const { return ranges_; }
  /// Returns the checksums of all items of earlier checkpoints to which the chunks refer, the same in every process.
  /// Each item occurs once.
  std::vector<checksum_range> referred_ranges() const;
  /// Returns the number of ranks that have a file.
  std::int64_t files() const { return static_cast<std::int64_t>(files_.size()); }
  /// Returns the size of all placed chunks' elements, in bytes.
  std::int64_t data_bytes() const { return data_bytes_; }
  /// Returns the part of `data_bytes` that earlier checkpoints hold.
  std::int64_t referred_bytes() const { return referred_bytes_; }

 private:
  struct rank_file {
    std::int32_t number = -1;  // in the staged output; -1: another process writes it
    std::string name;
    std::int64_t size_bytes = 0;
  };
  result<rank_file*> file_of(std::int32_t rank);

  staged_output& output_;
  std::optional<std::int32_t> only_;
  referred_items referred_;
  std::map<std::int32_t, rank_file> files_;
  std::vector<torch_file::written_item> items_;
  std::vector<item_place> places_;
  std::vector<checksum_range> ranges_;
  std::int64_t data_bytes_ = 0, referred_bytes_ = 0;
  std::int64_t skipped_bytes_ = 0;  // the part of `referred_bytes_` that this process would have written
};

/// Returns the size of the chunks' elements in bytes, without those of referred chunks: a lower bound on the size of
/// the files. Saturates.
std::int64_t data_bytes_of(std::span<const output_tensor> tensors, const referred_items& referred = {});

/// Adds `.metadata`, the side files, and the checksum record: the last files that a folder needs before it is
/// committed. `ranges` are the checksums of all items, written and referred; the function adds the metadata's own.
result<void> finish_folder(staged_output& output, std::span<const output_tensor> tensors,
                           std::span<const output_object> objects, std::span<const item_place> places,
                           const dcp::extras& extras, std::vector<checksum_range> ranges);

}  // namespace shardmesh::dcp
