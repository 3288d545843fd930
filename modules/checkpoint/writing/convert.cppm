// SPDX-License-Identifier: Apache-2.0
// convert and reshard: rewrite a checkpoint in another format, or for another mesh. Both only decide which tensors go
// where. The executor moves the bytes, and the writers create the files.
export module shardmesh.checkpoint:convert;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import shardmesh.transfer;
import shardmesh.checkpoint_core;
import :conversion;
import :placement_rules;
import :quantize_rule;
import :selection;
import :targets;

export namespace shardmesh {

/// The tensors that `convert` writes only once, under the first of their keys.
enum class dedup_rule : std::uint8_t {
  none,
  tied,   // one stored tensor under several names: the same bytes of a file, cut in the same way
  equal,  // also tensors of equal dtype and shape with equal bytes, except scalars
};

/// The files of a torch-checkpointing folder in which `convert` writes items.
enum class payload_kind : std::uint8_t {
  torch,        // files of torch.save
  safetensors,  // for items with only tensors that safetensors can hold; torch for the others
};

/// The options of `convert`: the format, the entries with their names and dtypes, and the treatment of entries that the
/// format cannot hold. By default, tensors go into one safetensors file and objects into a JSON file beside it, and
/// entries that these cannot hold are problems.
struct convert_options {
  target_format format = target_format::safetensors;
  selection_options selection{};
  std::int64_t max_shard_bytes = std::int64_t{5} * 1000 * 1000 * 1000;  // hf: Hugging Face's own default
  bool skip_objects = false;                                            // write only the tensors
  bool skip_unsupported = false;  // leave out entries that the destination cannot hold, and objects with such tensors
  /// Gives each tensor the shape of the tensor in this checkpoint that has its new name. Tensors without such a
  /// counterpart keep their shapes.
  checkpoint_reader* like = nullptr;
  bool allow_shape_mismatch = false;    // with `like`: cut at the end or fill with zeros; else a problem
  dedup_rule dedup = dedup_rule::none;  // never of optimizer state: its entries must be found under their own keys
  /// dcp, pt, torch_checkpointing: write wrapping tensors (sparse, nested, quantized, torchao's) as their components.
  /// Otherwise, components that an object describes become the wrapping tensor again. The other formats always have
  /// components.
  bool components = false;
  /// dcp, pt, torch_checkpointing: split flat names at dots. Keys "a" and "a.b" are then a problem.
  bool nest = false;
  std::string item{};  // torch_checkpointing: the item for everything; empty: a path's first name is its item
  payload_kind payload = payload_kind::torch;  // torch_checkpointing
  /// gguf: the types of tensors; the first rule that matches a key decides. Blocks of a GGUF source keep their type if
  /// no rule gives them another, and their bytes are copied unchanged.
  std::vector<quantize_rule> quantize{};
  // As in save_options.
  bool overwrite = false;
  bool durable = true;
  std::int64_t memory_bytes = default_memory_bytes;
  int threads = 0;
  time_limit within{};
  std::stop_token cancel{};
  std::function<void(std::int64_t bytes)> progress{};
  commit_hooks hooks{};

  /// Returns the options of the writer.
  save_options saving() const { return detail::saving_of(*this); }
};

/// Writes the tensors and objects of `reader` to `destination` in another format. Streams: `memory_bytes` bounds
/// the memory, whatever the checkpoint's size. Conversions between DCP and torch_checkpointing keep chunks and ranks.
/// An object that holds tensors is copied whole from DCP to the formats with pickles: DCP, .pt, and
/// torch_checkpointing. For all other formats it is split into entries. The same holds for wrapping tensors of known
/// classes; for formats with pickles, components in the source are recombined (torch_file::wrap_components).
/// \errors before the destination appears: errc::invalid_argument (options that contradict each other, a rule that
///         matches no key); one problem for each entry that the destination cannot hold (errc::unsupported, unless
///         `skip_unsupported` is set), that has another shape than in `like` (errc::shape_mismatch), or that
///         `verify` would refuse: every checksum that the source has for the entries to copy is compared. Then those of
///         the format's writer
result<save_report> convert(checkpoint_reader& reader, const std::filesystem::path& destination,
                            const convert_options& options);

/// How `reshard` and `plan_reshard` cut a checkpoint: over a mesh by placement rules, or like another checkpoint.
/// `mesh` or `like` is required (errc::invalid_argument). With both, `like` decides, and the rules are ignored.
struct reshard_options {
  std::optional<device_mesh> mesh{};            // cut by the rules over this mesh, or
  checkpoint_reader* like = nullptr;            // use the boxes and ranks of this checkpoint's tensors
  std::vector<placement_rule> place{};          // the first that matches a key decides
  std::vector<placement> default_placements{};  // for keys that no rule matches; empty: R on every mesh dimension
  bool optimizer_follows = true;                // optimizer state takes its parameter's placements
  bool allow_shape_mismatch = false;            // with `like`: cut at the end or fill with zeros to its shapes
  selection_options selection{};
  bool skip_unsupported = false;  // leave out entries that cannot be cut or written
  // As in save_options.
  bool overwrite = false;
  bool durable = true;
  std::int64_t memory_bytes = default_memory_bytes;
  int threads = 0;
  time_limit within{};
  std::stop_token cancel{};
  std::function<void(std::int64_t bytes)> progress{};
  commit_hooks hooks{};

  /// Returns the options of the writer.
  save_options saving() const { return detail::saving_of(*this); }
};

/// A reshard that is planned and not executed.
struct reshard_plan {
  std::vector<error> problems;
  std::vector<std::string> notes;
  std::vector<output_tensor> tensors;
  std::vector<output_object> objects;
  std::vector<std::size_t> sources, object_sources;  // indices in the reader's catalog
  std::int64_t excluded = 0, skipped_tensors = 0, skipped_objects = 0;
  std::int32_t ranks = 0;
  /// The readers that show tensors in another shape, or give them archives of their own. Each wraps the one before it,
  /// and the first wraps the given reader. The entries refer to the last of these readers; if there is none, to the
  /// given reader.
  std::vector<std::shared_ptr<checkpoint_reader>> shown;
};
/// Plans what `reshard` would do. The reader must outlive the result.
reshard_plan plan_reshard(checkpoint_reader& reader, const reshard_options& options);

/// Rewrites a checkpoint as DCP for another mesh, with each rank's bytes in its own file. A chunk that several ranks
/// hold is written once, by the least-loaded of them (ties: the lowest rank). A rank that owns nothing gets no file.
/// Runs the same checks as `convert` on the entries that it copies.
/// \errors the problems of `plan_reshard`; those of the checks of `convert`; those of the writer of DCP
result<save_report> reshard(checkpoint_reader& reader, const std::filesystem::path& destination,
                            const reshard_options& options);

}  // namespace shardmesh
