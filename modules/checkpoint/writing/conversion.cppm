// SPDX-License-Identifier: Apache-2.0
// conversion: the entries of a checkpoint that a command writes, after selection, renaming, and casts. The first half
// of convert and of reshard.
export module shardmesh.checkpoint:conversion;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;
import :selection;

export namespace shardmesh {

/// The result of `select_for_output`: the entries for the destination, with their new names and dtypes and the places
/// of their bytes, and every reason against writing them.
struct conversion {
  std::vector<error> problems;         // if there are any, nothing may be written
  std::vector<std::string> notes;      // for the user, one line each
  std::vector<output_tensor> tensors;  // chunks and ranks as stored; `bytes.from` is over the reader's chunks
  std::vector<std::size_t> sources;    // per tensor: its index in the reader's catalog
  std::vector<output_object> objects;
  std::vector<std::size_t> object_sources;  // per object: its index in the reader's catalog
  std::int64_t excluded = 0;                // entries that the selection left out
  /// Entries that no destination can hold, one error each. The caller refuses them, or leaves them out and counts them.
  std::vector<error> unsupported;
  std::int64_t unsupported_tensors = 0, unsupported_objects = 0;
};

/// Selects, renames, and casts. Checks that the chunks of every tensor tile it: gaps, overlaps, and chunks that are
/// stored twice or have no place are problems that name the key and the rows. The reader's own problems are included.
/// Does not look at tensor bytes. The reader must outlive the result. A renamed entry loses its nested path: its new
/// key is its path.
conversion select_for_output(checkpoint_reader& reader, const selection_options& options);

/// Finds entries whose nested paths cannot be in one tree, because one is a value where the other has a child. Each
/// problem names both keys. Cost: O(n log n).
std::vector<error> find_path_conflicts(std::span<const output_tensor> tensors, std::span<const output_object> objects);

}  // namespace shardmesh

namespace shardmesh {

/// Returns the rank that wrote the file with this number; 0 if unknown.
std::int32_t writer_of_file(const catalog& stored, std::int32_t file);

/// Turns unsupported entries into problems. If the user skips them, counts them in the report instead.
void settle_unsupported(conversion& work, bool skip, save_report& report);

/// Moves objects that the source does not hold whole (objects.json has a type's name in place of a value) to the
/// unsupported entries. Needed for destinations with pickles, which cannot hold such objects. Cost: O(their JSON).
void find_unpicklable(checkpoint_reader& reader, conversion& work);

/// Adds a problem for each entry that cannot be read because the ranks saved different values of it: a write would name
/// only the first of them. Cost: O(entries) if the reader warns of such entries.
void find_disputed(checkpoint_reader& reader, conversion& work, bool with_objects);

/// Returns an error if nothing is left for the destination, but the source has tensors that no entry names.
std::optional<error> find_lost_tensors(const checkpoint_reader& reader, const conversion& work, bool skip);

/// Drops the tensors, or the objects, for which `drop` holds. Returns their number.
std::int64_t drop_tensors(conversion& work, function_ref<bool(const output_tensor& tensor)> drop);
std::int64_t drop_objects(conversion& work, function_ref<bool(const output_object& object)> drop);

}  // namespace shardmesh
