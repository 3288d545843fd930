// SPDX-License-Identifier: Apache-2.0
// convert and reshard: a checkpoint into another format, or onto another mesh. Both only decide which tensors go where;
// bytes move by the executor, files appear by the writers.
export module shardmesh.checkpoint:convert;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import shardmesh.transfer;
import shardmesh.catalog;
import :conversion;
import :placement_rules;
import :selection;
import :targets;

export namespace shardmesh {

/// Which tensors `convert` writes only once, under the first key.
enum class dedup : std::uint8_t {
  none,
  tied,   // those that are one stored tensor under several names: the same bytes of a file, cut alike
  equal,  // beside those, tensors of one dtype and shape with equal bytes; scalars are kept
};

/// What `convert` writes: the format, which entries under which names and dtypes, and what becomes of those that the
/// format cannot hold. By default tensors go into one safetensors file and objects into a JSON file beside it, and what
/// those cannot hold is a problem.
struct convert_options {
  target_format to = target_format::safetensors;
  selection_options selection{};
  std::int64_t max_shard_bytes = std::int64_t{5} * 1000 * 1000 * 1000;  // hf: Hugging Face's own default
  bool skip_objects = false;                                            // write the tensors only
  bool skip_unsupported = false;  // leave out tensors that the destination cannot hold, and objects that hold such
  /// Tensors get the shapes of those of this checkpoint that have their new names; others keep theirs.
  checkpoint_reader* shapes_like = nullptr;
  bool allow_shape_mismatch = false;  // with `shapes_like`: cut at the end or filled with zeros; else a problem
  dedup merge = dedup::none;          // optimizer state is never merged: it must be found under its own key
  /// dcp, pt, torch_checkpointing: wrapping tensors (sparse, nested, quantized, torchao's) as their components, as
  /// safetensors and hf always have them. Else components that an object describes become the wrapper again.
  bool components = false;
  /// dcp, pt, torch_checkpointing from flat names: split them at dots; keys "a" and "a.b" are a problem.
  bool nest = false;
  std::string item{};              // torch_checkpointing: all goes below it; empty: a path's first name is its item
  bool safetensors_files = false;  // torch_checkpointing: for items of nothing but tensors that safetensors can hold
  save_options saving{};
};

/// Writes `reader`'s tensors and objects to `destination` in another format. Streams: memory is bounded by
/// `saving.memory_bytes` whatever the size. DCP and torch_checkpointing keep their chunks and ranks between one
/// another. Tensors that the destination cannot hold are all named in the report and nothing is written, unless
/// `skip_unsupported`. Nothing is written either when `verify` would refuse any entry that is to be copied: every
/// checksum that the source has of them is compared before the destination appears. An object that holds tensors is
/// copied whole from DCP to DCP and to .pt, and taken apart into entries everywhere else. So are wrapping tensors of
/// known classes; to DCP and .pt their components are put together again (torch_file::wrap_components).
save_report convert(checkpoint_reader& reader, const std::filesystem::path& destination,
                    const convert_options& options);

/// How `reshard` and `plan_reshard` cut a checkpoint: over a mesh by placement rules, or as another checkpoint is cut.
/// `mesh` or `like` has to be given (errc::invalid_argument); with both, `like` decides and the rules are not looked
/// at.
struct reshard_options {
  std::optional<device_mesh> mesh{};              // with rules; or
  checkpoint_reader* like = nullptr;              // boxes and ranks of another checkpoint's tensors
  std::vector<placement_rule> placement_rules{};  // the first that matches a key decides
  std::vector<placement> default_placements{};    // of keys that no rule matches; empty: R on every mesh dimension
  bool optimizer_follows = true;                  // optimizer state takes its parameter's placement
  bool allow_shape_mismatch = false;              // with `like`: cut at the end or filled with zeros to its shapes
  selection_options selection{};
  bool skip_unsupported = false;  // leave out what cannot be cut or written
  save_options saving{};
};

/// What a reshard would move.
struct reshard_plan {
  std::vector<error> problems;
  std::vector<std::string> notes;
  std::vector<output_tensor> tensors;
  std::vector<output_object> objects;
  std::vector<std::size_t> sources, object_sources;  // their indices in the reader's catalog
  std::int64_t excluded = 0, skipped_tensors = 0, skipped_objects = 0;
  std::int32_t ranks = 0;
  /// Where some change their shape, or lie in no archive of their own: each shows the one before it, the first the
  /// given reader, and the entries are the last one's. Empty: they are the given reader's.
  std::vector<std::shared_ptr<checkpoint_reader>> shown;
};
/// What `reshard` would do. The reader must outlive the result.
reshard_plan plan_reshard(checkpoint_reader& reader, const reshard_options& options);

/// Rewrites a checkpoint as DCP for another mesh: each rank's bytes in its own file. A chunk that several ranks hold is
/// written once, by its least-loaded holder (ties: the lowest rank). A rank that owns nothing gets no file. Checks what
/// it copies as `convert` does.
save_report reshard(checkpoint_reader& reader, const std::filesystem::path& destination,
                    const reshard_options& options);

}  // namespace shardmesh
