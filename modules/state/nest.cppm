// SPDX-License-Identifier: Apache-2.0
// Flattens the metadata of nested sharded tensors. It does not depend on the tensors' type, so it is compiled once.
// Internal to the room. The tensors and state dicts are in flatten_nested.
export module shardmesh.state:nest;

import shardmesh.std;
import shardmesh.sharding;
import shardmesh.tree;
import :dict_tree;

namespace shardmesh::detail {

/// A sharded tensor inside another, with its shards on this rank, in slot order.
struct nest_member {
  sharded_tensor_metadata_view metadata;  // of any type, by reference
  extents size;                           // the metadata's
  rank_group group;
  std::int32_t rank = 0;             // in the group
  std::vector<std::int32_t> nested;  // per local shard: the member inside it, or -1
};

/// A sharded tensor and all tensors nested in it on this rank; the first is the outermost.
using nest = std::vector<nest_member>;

/// The inside of another rank's shard, as far as it is known.
struct inner_answer {
  enum class what : std::uint8_t { unknown, whole, inner } kind = what::unknown;
  std::vector<shard_metadata> shards{};  // in the coordinates of the whole tensor
  bool is_final = false;                 // true: the shards are not looked up again
};
/// Identifies a shard in a nest: its index in the outermost tensor's list of shards, then in the list inside that
/// shard, and so on. The lists are the same on every rank. Boxes cannot identify shards, since several empty shards can
/// be at one place.
using nest_position = std::vector<std::int32_t>;
/// \param shard  in the coordinates of the whole tensor
using inner_lookup = function_ref<result<inner_answer>(const nest_position& at, const shard_metadata& shard)>;

/// Metadata without nesting.
struct flat_nest {
  bool is_changed = false;
  std::vector<shard_metadata> shards;
  std::vector<std::size_t> local;  // the indices of this rank's shards, in the order of a walk through them
  std::int64_t unknown = 0;        // shards of other ranks that may be nested
  rank_group group;                // contains the ranks of all shards
  std::int32_t rank = 0;           // this rank in that group
};

/// Checks the facts that an adapter of another framework may get wrong: the rank is in the group, and the local shards
/// are those that the metadata gives it, in the same order. \errors errc::invalid_argument naming rank and box,
/// errc::rank_too_large
result<void> check_member(const nest_member& member, std::span<const shard_metadata_view> local);

/// Returns the true boxes and owners of all innermost shards. \errors errc::out_of_bounds, errc::shape_mismatch,
/// errc::dtype_mismatch, errc::overlap, errc::gap, errc::invalid_argument; each naming ranks and boxes
result<flat_nest> flatten_nest(const nest& members, inner_lookup lookup, const std::optional<rank_group>& wanted);
/// Flattens as PyTorch does: one level, and other ranks' shards get a rank that does not hold them. Precondition: the
/// outer tensor has one local shard, which is nested.
result<flat_nest> flatten_nest_as_torch(const nest& members, const std::optional<rank_group>& wanted);

/// Moves the metadata inside one shard into the coordinates of the whole tensor.
result<std::vector<shard_metadata>> inside_of(const shard_metadata& shard, const sharded_tensor_metadata& inner);

/// Checks that a local tensor has the properties that the outermost metadata claims.
result<void> check_properties(const tensor_properties& claimed, const tensor_properties& found, bool only_dtype,
                              const shard_metadata& where);

/// The nodes that torch.distributed.checkpoint visits, with its paths, in which every key of a mapping is a name.
struct torch_item {
  path where;
  std::size_t node = 0, first_leaf = 0;
};
std::vector<torch_item> torch_items(const tree_spec& spec, std::span<const std::uint8_t> is_tensor);

/// The insides of the ranks' shards, by key, collected in an exchange.
class known_insides {
 public:
  /// Adds this rank's part of the exchange.
  void add(const std::string& key, const nest& members);
  std::span<const std::byte> bytes() const { return sent_.written(); }
  /// Reads the messages of a group's ranks, in rank order. \errors errc::bad_format naming the rank
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
