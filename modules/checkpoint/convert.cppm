// SPDX-License-Identifier: Apache-2.0
// convert and reshard: a checkpoint into another format, or onto another mesh. Both only decide which tensors go where;
// bytes move by the executor, files appear by the writers.
export module shardmesh.checkpoint:convert;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import shardmesh.transfer;
import :conversion;
import :output;
import :placement_rules;
import :reader;
import :selection;

export namespace shardmesh {

enum class target_format : std::uint8_t { dcp, safetensors, hf };

struct convert_options {
  target_format to = target_format::safetensors;
  selection_options selection{};
  std::int64_t max_shard_bytes = std::int64_t{5} * 1000 * 1000 * 1000;  // hf: Hugging Face's own default
  bool skip_objects = false;                                            // safetensors, hf: do not write objects.json
  bool skip_unsupported = false;  // leave out tensors that the destination cannot hold, and objects that hold such
  bool dedup = false;  // tensors with equal stored bytes (tied weights) are written once, under the first key
  bool nest = false;   // dcp from flat names: split them at dots
  save_options saving{};
};

/// Writes `reader`'s tensors and objects to `destination` in another format. Streams: memory is bounded by
/// `saving.memory_bytes` whatever the size. DCP keeps its chunks and their ranks; other sources become one chunk each.
/// Tensors that the destination cannot hold are all named in the report and nothing is written, unless
/// `skip_unsupported`. An object that holds tensors is copied whole from DCP to DCP, and taken apart into entries
/// everywhere else.
save_report convert(checkpoint_reader& reader, const std::filesystem::path& destination,
                    const convert_options& options);

struct reshard_options {
  std::optional<device_mesh> mesh{};              // with rules; or
  checkpoint_reader* like = nullptr;              // boxes and ranks of another checkpoint's tensors
  std::vector<placement_rule> placement_rules{};  // the first that matches a key decides
  std::vector<placement> default_placements{};    // of keys that no rule matches; empty: R on every mesh dimension
  bool optimizer_follows = true;                  // optimizer state takes its parameter's placement
  selection_options selection{};
  bool skip_unsupported = false;  // leave out what cannot be cut or written
  save_options saving{};
};

/// What a reshard would move, for --dry-run.
struct reshard_plan {
  std::vector<error> problems;
  std::vector<std::string> notes;
  std::vector<output_tensor> tensors;
  std::vector<output_object> objects;
  std::int64_t excluded = 0, skipped_tensors = 0, skipped_objects = 0;
  std::int32_t ranks = 0;
};
reshard_plan plan_reshard(checkpoint_reader& reader, const reshard_options& options);

/// Rewrites a checkpoint as DCP for another mesh: each rank's bytes in its own file. A chunk that several ranks hold is
/// written once, by its least-loaded holder (ties: the lowest rank). A rank that owns nothing gets no file.
save_report reshard(checkpoint_reader& reader, const std::filesystem::path& destination,
                    const reshard_options& options);

}  // namespace shardmesh
