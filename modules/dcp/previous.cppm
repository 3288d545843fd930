// SPDX-License-Identifier: Apache-2.0
// The earlier checkpoint to which an incremental save refers: chunks whose bytes it already holds are not written
// again. The rest is in `files`; references in a checkpoint that is read are in `storage_data`.
export module shardmesh.dcp:previous;

import shardmesh.std;
import shardmesh.core;
import shardmesh.transfer;
import shardmesh.storage;
import shardmesh.checkpoint_core;
import :metadata;

export namespace shardmesh::dcp {

/// An item of an earlier checkpoint that holds a chunk of a new one.
struct referred_item {
  item_place at;       // its file is a `sibling_file`: "../step-90/__0_0.distcp"
  std::string digits;  // the checksum of the item's bytes
};

/// Items of earlier checkpoints, by the number of the chunk that each holds. Chunks are numbered from 0 over all
/// tensors, in order.
using referred_items = std::map<std::int64_t, referred_item>;

/// A DCP folder that shardmesh wrote, beside the folder of a new checkpoint. References are flat: if it refers to a
/// third folder itself, the new checkpoint refers to the third folder. A handle: copies share the description.
class previous_checkpoint {
 public:
  /// Opens a folder, and checks that a new checkpoint at `destination` may refer to it. Reads the description and the
  /// record of checksums, and compares the files' sizes with the record. Reads no item: the record is trusted.
  /// \errors errc::invalid_argument (not a DCP folder, no record, not in the destination's parent folder, the
  ///         destination itself, or a name that a reference cannot spell), errc::checksum_mismatch (a record that is
  ///         damaged or of another save, files of other lengths), and those of `open`; each names the folder and the
  ///         remedy
  static result<previous_checkpoint> open(const std::filesystem::path& folder,
                                          const std::filesystem::path& destination);

  /// Returns the digest of the folder's record. Ranks compare it.
  digest128 digest() const;
  /// Returns the chunks, by number, whose item of the same key, shape, dtype, and box has the same bytes. Hashes the
  /// chunks that have such an item. `only`: considers only the chunks that this rank writes.
  /// \errors those of the source; errc::cancelled, errc::deadline_exceeded
  /// Cost: reads those chunks once.
  result<std::vector<std::int64_t>> find_unchanged(std::span<const output_tensor> tensors, element_source source,
                                                   std::optional<std::int32_t> only,
                                                   const item_run_options& options) const;
  /// Returns the items of chunks that `find_unchanged` returned, here or on other ranks.
  /// \errors errc::bad_format for a chunk without an item
  result<referred_items> items_of(std::span<const output_tensor> tensors, std::span<const std::int64_t> chunks) const;
  /// Checks, before the commit, that every file with one of these items is the one that `open` saw.
  /// \errors errc::io, naming the file
  result<void> check_unchanged(const referred_items& items) const;

  struct state;

 private:
  explicit previous_checkpoint(std::shared_ptr<const state> opened) : state_(std::move(opened)) {}
  std::shared_ptr<const state> state_;
};

/// Returns the names of the folders, ascending, whose items a DCP folder refers to. They lie beside it: a folder
/// "run/step-100" that refers to "step-90" needs "run/step-90". Reads only the description.
/// \errors those of `open`; the first problem of a description that is not readable as a whole, since the answer could
///         lack a folder
/// Cost: as `open`.
result<std::vector<std::string>> references_of(const std::filesystem::path& folder);

}  // namespace shardmesh::dcp
