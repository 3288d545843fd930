// SPDX-License-Identifier: Apache-2.0
// DCP metadata: converts the pickle in `.metadata` to a catalog, and back. Items and folders are in `reader` and
// `save`.
export module shardmesh.dcp:metadata;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;
import shardmesh.pickle;
import shardmesh.checkpoint_core;

export namespace shardmesh::dcp {

/// The contents of a DCP folder apart from tensors, objects, and places.
struct extras {
  std::shared_ptr<const pickle::graph> graph;  // owns the values below; null: none
  std::string version;                         // empty: the file has none
  bool has_version = true;
  bool has_planner_data = true;                                        // false: written without flattening
  std::vector<std::pair<std::string, pickle::value>> attributes;       // storage_meta, mcore_data, ...
  std::vector<std::pair<std::string, pickle::value>> planner_entries;  // of planner_data, under names that no entry has
  /// Texts of the safetensors files from which the checkpoint was made: the attribute `safetensors_metadata`, a dict of
  /// str.
  std::vector<std::pair<std::string, std::string>> texts;
  /// StorageMeta.save_id of a new save; empty: `attributes` hold a storage_meta, or there is none.
  std::string save_id;
  std::vector<side_file> side_files;  // to be copied beside the checkpoint
  /// Entries of the reader that lie in Megatron's common.pt, a side file: they are copied with it.
  std::set<std::string> common_keys;
};

/// Returns the extras of a folder whose source had none: the version that PyTorch writes.
/// Source: torch/distributed/checkpoint/filesystem.py, CURRENT_DCP_VERSION
extras new_extras();

struct metadata {
  catalog contents;
  dcp::extras extras;
  std::vector<error> problems;  // entries that cannot be used; the rest can
  std::vector<error> warnings;  // oddities that leave every entry readable
  /// By key: the error of reading an entry under which ranks hold different values.
  std::map<std::string, error, std::less<>> conflicts;
  /// Items of ranks that `contents` leaves out, because a listed item holds the same value, or because the values are
  /// in conflict. Each tensor has only the chunks that are left out. Files and transforms are numbered as in
  /// `contents`.
  catalog copies;
  /// Positions in `contents.chunk_places`, ascending, of chunks that repeat the box and the item of an earlier chunk:
  /// entries KEY@RANK of one key share the chunks of other ranks.
  std::vector<std::int32_t> shared_chunks;
  std::vector<std::string> notes;  // on entries and chunks of other ranks that a preferred rank's view leaves out
  /// The names in the pickle of each file, by the file's name; only for files that were read whole.
  std::map<std::string, pickle::used_names, std::less<>> names;
};

/// Reads the pickle of a `.metadata` or `__N.metadata` file, of any PyTorch since 1.13. Unknown classes and attributes
/// are kept as inert records. `file` is for messages. `budget` counts what is built from the bytes; null: a budget of
/// its own.
/// \errors errc::bad_pickle; errc::bad_format when the root is not a Metadata. Defects of single entries (a negative
///         size, a chunk out of bounds, a path that leaves the folder) are reported as problems, each naming file and
///         key.
/// Cost: O(bytes). Source: torch/distributed/checkpoint/metadata.py, filesystem.py
result<metadata> parse_metadata(std::vector<std::byte> bytes, std::string_view file, read_budget* budget = nullptr);

/// Attributes of Metadata that shardmesh adds. PyTorch keeps and ignores unknown attributes.
inline constexpr std::string_view texts_attribute = "safetensors_metadata";
inline constexpr std::string_view strides_attribute = "tensor_strides";
inline constexpr std::string_view paths_attribute = "nested_paths";

/// The rules by which the descriptions of several ranks become one.
struct merge_rules {
  /// The rank of each part; empty: the parts' positions.
  std::vector<std::int64_t> ranks = {};
  /// The rank whose values win over those of others. Its shards are still merged with theirs, as far as they do not
  /// overlap.
  std::optional<std::int64_t> preferred = {};
  /// A key with different values becomes one entry KEY@RANK for each rank. It has the rank's own chunks, and those of
  /// other ranks elsewhere, which therefore occur in several entries (`metadata::shared_chunks`).
  bool keys_at_ranks = false;
  /// Returns whether two items, each with the name of its file, hold the same bytes. Null: all do.
  std::function<result<bool>(const std::string& file, const stored_range& place, const std::string& other_file,
                             const stored_range& other)>
      are_equal = {};
};

/// Merges the `__N.metadata` of every rank (at least one) into one description. Equal boxes of several ranks become one
/// chunk when their items hold the same bytes; all items but the first are `copies`. A key with different values,
/// shapes, or dtypes yields the preferred rank's value, entries KEY@RANK, or one of the `conflicts`. A preferred rank's
/// lists have no elements of other ranks. The files of all ranks are listed, whether or not an entry refers to them.
/// Cost: O(n log n) in chunks, and a comparison of each item that several ranks hold (none when a preferred rank holds
/// it).
metadata merge_metadata(std::vector<metadata> parts, const merge_rules& rules = {});

/// The location of a written entry: file, offset, and length of its item.
struct item_place {
  std::string file;
  std::int64_t offset = 0, length = 0;
};

/// Returns the pickle of a `.metadata` for these entries. `places`: one per chunk of every tensor, in order; then one
/// per object. PyTorch 2.13 and 2.15 load it as their own Metadata object: TensorProperties have the five fields that
/// both read. The sixth field that 2.15 writes, strides, would stop older versions. It is therefore an attribute
/// `tensor_strides` (a dict by key), for tensors whose dtype and chunks are unchanged. Paths by which PyTorch could not
/// nest entries are shortened in planner_data, and stored whole in an attribute `nested_paths` (a dict of tuples by
/// key).
std::vector<std::byte> format_metadata(std::span<const output_tensor> tensors, std::span<const output_object> objects,
                                       std::span<const item_place> places, const dcp::extras& extras);

}  // namespace shardmesh::dcp
