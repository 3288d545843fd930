// SPDX-License-Identifier: Apache-2.0
// conversion: the entries of a checkpoint that a command writes, after selection, renaming and casts; the first half of
// convert and of reshard.
export module shardmesh.checkpoint:conversion;

import shardmesh.std;
import shardmesh.core;
import shardmesh.catalog;
import :selection;

export namespace shardmesh {

/// What `select_for_output` made of a checkpoint: the entries that go into the destination, under their new names and
/// dtypes and with where their bytes are, and everything that speaks against writing them.
struct conversion {
  std::vector<error> problems;         // when there are any, nothing may be written
  std::vector<std::string> notes;      // for the user, one line each
  std::vector<output_tensor> tensors;  // chunks and ranks as they are stored; `bytes.from` over the reader's chunks
  std::vector<std::size_t> sources;    // per tensor: its index in the reader's catalog
  std::vector<output_object> objects;
  std::vector<std::size_t> object_sources;  // per object: its index in the reader's catalog
  std::int64_t excluded = 0;                // entries that the selection left out
  /// Entries that nothing can carry, one error each: the caller refuses, or leaves them out and counts them.
  std::vector<error> unsupported;
  std::int64_t unsupported_tensors = 0, unsupported_objects = 0;
};

/// Selects, renames and casts. Every tensor's chunks are proven to tile it: gaps, overlaps, chunks that are stored
/// twice or have no place are problems that name key and rows, as are the reader's own. Bytes are not looked at. The
/// reader must outlive the result. A renamed entry loses its nested path: its new key is its path.
conversion select_for_output(checkpoint_reader& reader, const selection_options& options);

/// Entries whose nested paths cannot stand in one tree: one is a value where the other has a part below. Each problem
/// names both keys. Cost: O(n log n).
std::vector<error> find_path_conflicts(std::span<const output_tensor> tensors, std::span<const output_object> objects);

}  // namespace shardmesh

namespace shardmesh {

/// The rank that wrote the file of this number; 0 where that is not known.
std::int32_t writer_of_file(const catalog& stored, std::int32_t file);

/// Makes problems of what is unsupported, unless the user wants it left out: then the report counts it.
void settle_unsupported(conversion& work, bool skip, save_report& report);

/// Objects that the source does not hold whole (objects.json has a type's name in the place of a value) are
/// unsupported from now on: for destinations of pickles, which have no place for less. Cost: O(their JSON).
void find_unpicklable(checkpoint_reader& reader, conversion& work);

/// Nothing is left for the destination, but the source has tensors that no entry names.
std::optional<error> find_lost_tensors(const checkpoint_reader& reader, const conversion& work, bool skip);

/// Leaves out the tensors, and the objects, for which `drop` holds. Returns how many went.
std::int64_t drop_tensors(conversion& work, function_ref<bool(const output_tensor& tensor)> drop);
std::int64_t drop_objects(conversion& work, function_ref<bool(const output_object& object)> drop);

}  // namespace shardmesh
