// SPDX-License-Identifier: Apache-2.0
// flat_parameter: which parameters lie where in one flat tensor, and which part of it each rank of a group holds.
// Not here: memory, the parameters as boxes (flat_distribution).
export module shardmesh.fsdp:flat_parameter;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;

export namespace shardmesh {

/// One parameter of a unit. `strides` are in elements; empty: row-major. The parameter is dense in memory, its
/// dimensions in any order.
struct parameter_info {
  std::string fqn;  // within the unit: "up.weight"
  extents shape;
  extents strides;
  dtype type = dtype::float32;
  bool requires_grad = true;
  friend bool operator==(const parameter_info&, const parameter_info&) = default;
};

/// Another name of a parameter (tied weights): stored once, named twice.
struct shared_parameter_info {
  std::string fqn;
  std::string of;  // the fqn of the parameter
  friend bool operator==(const shared_parameter_info&, const shared_parameter_info&) = default;
};

/// How `flat_parameter::make` lays parameters out and cuts them. By default one after the other without padding, for
/// one rank.
struct flat_parameter_options {
  std::int32_t group_size = 1;  // ranks that share the flat tensor
  std::int64_t alignment = 0;  // every parameter begins at a multiple of this many elements; 0: no padding between them
  bool sharded = true;         // false: every rank holds everything (PyTorch's NO_SHARD)
};

/// What PyTorch puts into alignment padding; the padding at the end of the last shards is 0.
inline constexpr int alignment_padding_value = 42;

/// Elements that 16 bytes hold: the alignment that PyTorch uses with `use_orig_params`.
std::int64_t alignment_of(dtype type);

/// A run of the flat tensor: a parameter, or alignment padding.
struct flat_segment {
  std::int64_t offset = 0, numel = 0;  // elements
  std::optional<std::size_t> parameter;
  bool is_padding() const { return !parameter; }
  friend bool operator==(const flat_segment&, const flat_segment&) = default;
};

/// What one rank holds of one parameter. As in PyTorch, `intra_end` is the last element, not one past it.
/// Source: torch.distributed.fsdp._flat_param._ShardParamInfo.
struct shard_parameter_info {
  bool in_shard = false;
  std::int64_t offset_in_shard = 0, numel_in_shard = 0;
  std::int64_t intra_begin = 0, intra_end = 0;
  friend bool operator==(const shard_parameter_info&, const shard_parameter_info&) = default;
};

/// The parameters that one rank holds something of. Lists are parallel; offsets are the first and the last element.
/// Source: torch.distributed.fsdp._flat_param.FlatParamShardMetadata.
struct flat_shard_metadata {
  std::vector<std::string> names;
  std::vector<extents> shapes, strides;
  std::vector<bool> contiguous;
  std::vector<std::int64_t> numels;
  std::vector<std::pair<std::int64_t, std::int64_t>> offsets;
  friend bool operator==(const flat_shard_metadata&, const flat_shard_metadata&) = default;
};

/// Several parameters laid one after the other in one flat tensor, which is cut evenly over a group of ranks: rank i
/// holds elements [i * sharded_numel, (i + 1) * sharded_numel), zeros beyond the end. An immutable value without
/// memory, cheap to copy. Source: torch.distributed.fsdp._flat_param.FlatParameter.
class flat_parameter {
 public:
  /// No parameters, one rank.
  flat_parameter();

  /// \errors errc::dtype_mismatch (one dtype in a flat parameter), errc::duplicate_key, errc::missing_key (a shared
  ///         parameter of none), errc::shape_mismatch (as many strides as sizes), errc::unsupported (not dense),
  ///         errc::overflow, errc::invalid_argument (group size, alignment, a negative size); each names the parameter
  /// Cost: O(parameters log parameters).
  static result<flat_parameter> make(std::vector<parameter_info> parameters,
                                     std::vector<shared_parameter_info> shared = {},
                                     const flat_parameter_options& options = {});

  /// In flat order, with strides.
  std::span<const parameter_info> parameters() const;
  std::span<const shared_parameter_info> shared() const;
  std::int32_t group_size() const;
  std::int64_t alignment() const;
  bool is_sharded() const;
  /// Of all parameters; undefined when there are none.
  dtype type() const;

  /// The parameter of that name (a shared name too), or nothing. Cost: O(log parameters).
  std::optional<std::size_t> find(std::string_view fqn) const;
  std::int64_t numel(std::size_t parameter) const;
  /// Where a parameter begins in the flat tensor.
  std::int64_t offset(std::size_t parameter) const;
  /// The order of a parameter's dimensions in memory.
  const extents& order(std::size_t parameter) const;
  /// Row-major with a last stride of 1, as PyTorch records it.
  bool is_contiguous(std::size_t parameter) const;
  /// Parameters and alignment padding in flat order.
  std::span<const flat_segment> segments() const;

  /// Elements of the flat tensor with alignment padding, without padding at the end.
  std::int64_t unsharded_numel() const;
  /// Elements of the shards of all ranks: sharded_numel * group_size, or unsharded_numel when not sharded.
  std::int64_t padded_numel() const;
  /// Elements of every rank's shard.
  std::int64_t sharded_numel() const;

  /// The elements that a rank holds, without padding at the end. Precondition: 0 <= rank < group_size.
  index_range shard_range(std::int32_t rank) const;
  /// Padding at the end of a rank's shard.
  std::int64_t shard_numel_padded(std::int32_t rank) const;
  shard_parameter_info shard_info(std::int32_t rank, std::size_t parameter) const;
  flat_shard_metadata shard_metadata(std::int32_t rank) const;

  /// Writes the values of all padding into a rank's shard: 42 between parameters, 0 at the end.
  /// \param shard  1-D, sharded_numel elements, on the host
  /// \errors errc::shape_mismatch, errc::dtype_mismatch, errc::unsupported (memory of a device), naming the rank
  result<void> fill_padding(std::int32_t rank, const tensor_view& shard) const;

  friend bool operator==(const flat_parameter& a, const flat_parameter& b);

 private:
  struct description;
  std::shared_ptr<const description> description_;
};

}  // namespace shardmesh
