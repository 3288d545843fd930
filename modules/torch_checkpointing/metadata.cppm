// SPDX-License-Identifier: Apache-2.0
// metadata: what metadata.pkl says: per item of a checkpoint its tensors, which rank holds which boxes of them, and the
// ranks' files. Not here: the files (reader).
export module shardmesh.torch_checkpointing:metadata;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import shardmesh.tree;
import shardmesh.storage;

export namespace shardmesh::torch_checkpointing {

inline constexpr std::string_view metadata_file_name = "metadata.pkl";

/// How some ranks hold a tensor: by mesh and placements (a DTensor; a plain tensor counts as replicated), or by boxes
/// (a CheckpointableTensor). Source: DTensorShardingMetadata and DefaultShardingMetadata of torch_checkpointing
struct sharding {
  extents shape;
  dtype type = dtype::undefined;
  std::vector<std::int32_t> ranks;
  std::optional<layout> laid_out;
  std::vector<placed_box> boxes;  // without `laid_out`: of every rank of `ranks`

  /// The boxes of a rank and where they lie in the tensor of its file; none when it holds nothing.
  std::vector<placed_box> boxes_of(std::int32_t rank) const;
  /// Sizes of the tensor in the rank's file, where the metadata says them.
  std::optional<extents> local_shape(std::int32_t rank) const;
};

struct tensor_metadata {
  path where;  // within the item; empty: the item is the tensor
  std::vector<sharding> groups;
};

/// How a file holds what it holds.
enum class payload : std::uint8_t { torch, safetensors, json, raw };

struct rank_file {
  std::string name;  // relative to the folder
  payload how = payload::torch;
};

/// One item of a checkpoint ("model", "optimizer"): a file for each rank.
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

/// The rank whose file this is, by the names that the package and we give: 3 of "model_3.pt", "model_3.safetensors" and
/// "rank_3/model.safetensors". Nothing where the name does not say so.
std::optional<std::int32_t> rank_of_file(std::string_view name);

/// Where an item lies that has no layout of its own: "ITEM_RANK.pt".
std::string default_file_name(std::string_view item, std::int32_t rank);

/// metadata.pkl of version 2.0 or 1.0: plain data; nothing in it is executed, and whatever is no plain data is damage.
/// \errors errc::bad_pickle; errc::unsupported for another version, kind of sharding, placement or file, by its name;
///         errc::bad_format, errc::unsafe_path (a file name that leaves the folder), each naming the item or key
/// Source: torch_checkpointing/distributed_metadata.py (DistributedMetadata.from_dict)
result<metadata> parse_metadata(std::vector<std::byte> bytes, read_budget& budget);

/// metadata.pkl of version 2.0, as the package writes it; what `parse_metadata` reads as equal. A mesh without names
/// has none, and a file that has its default name and is torch.save's no layout. `device_type` is "cpu".
/// Source: torch_checkpointing/distributed_metadata.py (DistributedMetadata.to_dict)
std::vector<std::byte> format_metadata(const metadata& described);

}  // namespace shardmesh::torch_checkpointing
