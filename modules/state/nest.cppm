// SPDX-License-Identifier: Apache-2.0
// What flattening a nested sharded tensor makes of its metadata; nothing here knows of tensors, so it is compiled once.
// Internal to the room. Not here: the tensors and state dicts (flatten_nested).
export module shardmesh.state:nest;

import shardmesh.std;
import shardmesh.sharding;
import shardmesh.tree;
import :dict_tree;

namespace shardmesh::detail {

/// A sharded tensor within another: what this rank holds of it, in slot order.
struct nest_member {
  sharded_tensor_metadata_view metadata;  // of any type, referred to
  extents size;                           // the metadata's
  rank_group group;
  std::int32_t rank = 0;             // in the group
  std::vector<std::int32_t> nested;  // for each local shard the member inside it, or -1
};

/// A sharded tensor and all that are nested in it on this rank; the first is the outermost.
using nest = std::vector<nest_member>;

/// What is known of a shard of another rank.
struct inner_answer {
  enum class what : std::uint8_t { unknown, whole, inner } kind = what::unknown;
  std::vector<shard_metadata> shards{};  // in the coordinates of the whole tensor
  bool is_final = false;                 // they are not asked for again
};
/// A shard in a nest: its position in the outermost tensor's list of shards, then in the list of what is inside that
/// shard, and so on. The lists are the same on every rank; boxes would not do, since empty shards can be at one place.
using nest_position = std::vector<std::int32_t>;
/// \param shard  in the coordinates of the whole tensor
using inner_lookup = function_ref<result<inner_answer>(const nest_position& at, const shard_metadata& shard)>;

/// Metadata without nesting.
struct flat_nest {
  bool is_changed = false;
  std::vector<shard_metadata> shards;
  std::vector<std::size_t> local;  // which of them this rank holds, in the order of a walk through its shards
  std::int64_t unknown = 0;        // shards of other ranks that may be nested
  rank_group group;                // that all of them are in
  std::int32_t rank = 0;           // this rank in that group
};

/// What an adapter of another framework may get wrong: the rank is in the group, and the local shards are those that
/// the metadata gives it, in its order. \errors errc::invalid_argument naming rank and box, errc::rank_too_large
result<void> check_member(const nest_member& member, std::span<const shard_metadata_view> local);

/// The true boxes and owners of all innermost shards. \errors errc::out_of_bounds, errc::shape_mismatch,
/// errc::dtype_mismatch, errc::overlap, errc::gap, errc::invalid_argument; each naming ranks and boxes
result<flat_nest> flatten_nest(const nest& members, inner_lookup lookup, const std::optional<rank_group>& wanted);
/// PyTorch's: one level, other ranks' shards given to a rank that does not hold them.
/// Precondition: one local shard in the outer tensor, which is nested.
result<flat_nest> flatten_nest_as_torch(const nest& members, const std::optional<rank_group>& wanted);

/// The metadata of one shard's inside, moved into the coordinates of the whole tensor.
result<std::vector<shard_metadata>> inside_of(const shard_metadata& shard, const sharded_tensor_metadata& inner);

/// A local tensor has the properties that the outermost metadata claims.
result<void> check_properties(const tensor_properties& claimed, const tensor_properties& found, bool only_dtype,
                              const shard_metadata& where);

/// Which nodes torch.distributed.checkpoint would visit (all but what is `dropped`, by leaf), with its paths: names
/// for every key of a mapping.
struct torch_item {
  path where;
  std::size_t node = 0, first_leaf = 0;
};
std::vector<torch_item> torch_items(const tree_spec& spec, std::span<const std::uint8_t> is_tensor);

/// What ranks know of the insides of their shards, by key; from an exchange.
class known_insides {
 public:
  /// This rank's part of the exchange.
  void add(const std::string& key, const nest& members);
  std::span<const std::byte> bytes() const { return sent_.written(); }
  /// What the ranks of a group sent, in rank order. \errors errc::bad_format naming the rank
  result<void> read(std::span<const std::vector<std::byte>> received, const rank_group& group);
  inner_answer find(const std::string& key, const nest_position& at, const shard_metadata& shard) const;

 private:
  struct inside {
    std::int32_t owner;
    box where;
    std::vector<shard_metadata> shards;
  };
  wire_writer sent_;
  std::map<std::string, std::map<nest_position, std::vector<inside>>, std::less<>> known_;
  rank_group group_;
};

}  // namespace shardmesh::detail
