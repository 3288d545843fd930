// SPDX-License-Identifier: Apache-2.0
// Reads and writes metadata.pkl. For each item of a checkpoint it holds the tensors, the boxes that each rank holds,
// and the names of the ranks' files. Reading the files is in reader.
export module shardmesh.torch_checkpointing:metadata;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import shardmesh.tree;
import shardmesh.storage;

export namespace shardmesh::torch_checkpointing {

inline constexpr std::string_view metadata_file_name = "metadata.pkl";

/// The distribution of a tensor over some ranks: by mesh and placements (a DTensor; a plain tensor counts as
/// replicated), or by boxes (a CheckpointableTensor).
/// Source: DTensorShardingMetadata and DefaultShardingMetadata of torch_checkpointing
struct sharding {
  extents shape;
  dtype type = dtype::undefined;
  std::vector<std::int32_t> ranks;
  std::optional<layout> laid_out;
  std::vector<placed_box> boxes;  // without `laid_out`: the boxes of each rank in `ranks`

  /// Returns a rank's boxes and their offsets in the tensor of its file; none when it holds nothing.
  std::vector<placed_box> boxes_of(std::int32_t rank) const;
  /// Returns the sizes of the tensor in the rank's file, when the metadata gives them.
  std::optional<extents> local_shape(std::int32_t rank) const;
};

struct tensor_metadata {
  path where;  // path within the item; empty: the item is the tensor
  std::vector<sharding> groups;
};

/// The format of a file.
enum class payload : std::uint8_t { torch, safetensors, json, raw };

struct rank_file {
  std::string name;  // relative to the folder
  payload how = payload::torch;
};

/// One item of a checkpoint ("model", "optimizer"), with one file per rank.
struct item_metadata {
  std::string key;
  std::vector<tensor_metadata> tensors;
  std::vector<rank_file> files;  // by rank
};

struct metadata {
  std::string version;
  std::int32_t world_size = 0;
  std::vector<item_metadata> items;
};

/// Returns the rank in a file's name, as the package and we spell it: 3 for "model_3.pt", "model_3.safetensors", and
/// "rank_3/model.safetensors". Returns nothing for other names.
std::optional<std::int32_t> rank_of_file(std::string_view name);

/// Returns the file name of an item without a layout of its own: "ITEM_RANK.pt".
std::string default_file_name(std::string_view item, std::int32_t rank);

/// Parses metadata.pkl of version 2.0 or 1.0. Nothing in it is executed. Anything but plain data is an error.
/// \errors errc::bad_pickle; errc::unsupported for an unknown version, kind of sharding, placement, or file, each by
///         its name; errc::bad_format, errc::unsafe_path (a file name that leaves the folder); these name the
///         item or key
/// Source: torch_checkpointing/distributed_metadata.py (DistributedMetadata.from_dict)
result<metadata> parse_metadata(std::vector<std::byte> bytes, read_budget& budget);

/// Formats metadata.pkl of version 2.0 as the package writes it; `parse_metadata` reads it back, without the names of
/// mesh dimensions. For a mesh without names, no names are written; for a torch.save file with the default name, no
/// layout is written. `device_type` is "cpu". Precondition: no layout has a `shard_segments`, which the package lacks;
/// give its boxes instead.
/// Source: torch_checkpointing/distributed_metadata.py (DistributedMetadata.to_dict)
std::vector<std::byte> format_metadata(const metadata& described);

}  // namespace shardmesh::torch_checkpointing
