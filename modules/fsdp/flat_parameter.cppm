// SPDX-License-Identifier: Apache-2.0
// flat_parameter: the place of each parameter in one flat tensor, and the part of it that each rank of a group holds.
// It owns no memory. Parameters as boxes are in flat_distribution.
export module shardmesh.fsdp:flat_parameter;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;

export namespace shardmesh {

/// One parameter of a unit. `strides` are in elements; empty: row-major. The parameter is dense in memory, with its
/// dimensions in any order.
struct parameter_info {
  std::string fqn;  // name within the unit: "up.weight"
  extents shape;
  extents strides;
  dtype type = dtype::float32;
  bool requires_grad = true;
  friend bool operator==(const parameter_info&, const parameter_info&) = default;
};

/// Another name of a parameter (tied weights): stored once, named twice.
struct shared_parameter_info {
  std::string fqn;
  std::string of;  // the fqn of the stored parameter
  friend bool operator==(const shared_parameter_info&, const shared_parameter_info&) = default;
};

/// Options of `flat_parameter::make`: the layout of the parameters and the cut over ranks. By default, the parameters
/// follow one another without padding, for one rank.
struct flat_parameter_options {
  std::int32_t group_size = 1;  // ranks that share the flat tensor
  std::int64_t alignment = 0;  // every parameter begins at a multiple of this many elements; 0: no padding between them
  bool sharded = true;         // false: every rank holds everything (PyTorch's NO_SHARD)
};

/// Returns the number of elements in 16 bytes, which is PyTorch's alignment with `use_orig_params`.
std::int64_t alignment_of(dtype type);

/// A run of the flat tensor: a parameter, or alignment padding.
struct flat_segment {
  std::int64_t offset = 0, numel = 0;  // elements
  std::optional<std::size_t> parameter;
  bool is_padding() const { return !parameter; }
  friend bool operator==(const flat_segment&, const flat_segment&) = default;
};

/// The part of one parameter that one rank holds. As in PyTorch, `intra_end` is the last element, not one past it.
/// Source: torch.distributed.fsdp._flat_param._ShardParamInfo
struct shard_parameter_info {
  bool in_shard = false;
  std::int64_t offset_in_shard = 0, numel_in_shard = 0;
  std::int64_t intra_begin = 0, intra_end = 0;
  friend bool operator==(const shard_parameter_info&, const shard_parameter_info&) = default;
};

/// The parameters of which one rank holds a part. The lists are parallel; `offsets` are the first and the last element.
/// Source: torch.distributed.fsdp._flat_param.FlatParamShardMetadata
struct flat_shard_metadata {
  std::vector<std::string> names;
  std::vector<extents> shapes, strides;
  std::vector<bool> contiguous;
  std::vector<std::int64_t> numels;
  std::vector<std::pair<std::int64_t, std::int64_t>> offsets;
  friend bool operator==(const flat_shard_metadata&, const flat_shard_metadata&) = default;
};

/// Several parameters, one after the other in one flat tensor, which is cut evenly over a group of ranks. Rank i holds
/// elements [i * sharded_numel, (i + 1) * sharded_numel), with zeros beyond the end. An immutable value without memory,
/// cheap to copy.
/// Source: torch.distributed.fsdp._flat_param.FlatParameter
class flat_parameter {
 public:
  /// Makes a flat parameter of no parameters, for one rank.
  flat_parameter();

  /// Lays out parameters in the order given.
  /// \errors errc::dtype_mismatch (parameters of different dtypes), errc::duplicate_key, errc::missing_key (a shared
  ///         parameter of an unknown parameter), errc::shape_mismatch (the numbers of strides and sizes differ),
  ///         errc::unsupported (not dense, or elements that are not whole bytes), errc::overflow,
  ///         errc::invalid_argument (group size, alignment, a negative size); each names the parameter
  /// Cost: O(parameters log parameters).
  static result<flat_parameter> make(std::vector<parameter_info> parameters,
                                     std::vector<shared_parameter_info> shared = {},
                                     const flat_parameter_options& options = {});

  /// The parameters in flat order, with their strides.
  std::span<const parameter_info> parameters() const;
  std::span<const shared_parameter_info> shared() const;
  std::int32_t group_size() const;
  std::int64_t alignment() const;
  bool is_sharded() const;
  /// The dtype of all parameters; undefined when there are none.
  dtype type() const;

  /// Returns the index of the parameter with that name (or shared name), or nothing. Cost: O(log parameters).
  std::optional<std::size_t> find(std::string_view fqn) const;
  std::int64_t numel(std::size_t parameter) const;
  /// The element of the flat tensor at which a parameter begins.
  std::int64_t offset(std::size_t parameter) const;
  /// The dimensions of a parameter, from the slowest in memory to the fastest.
  const extents& order(std::size_t parameter) const;
  /// Returns whether a parameter is row-major with a last stride of 1, as PyTorch records it.
  bool is_contiguous(std::size_t parameter) const;
  /// The parameters and the alignment padding, in flat order.
  std::span<const flat_segment> segments() const;

  /// Elements of the flat tensor, with alignment padding but without padding at the end.
  std::int64_t unsharded_numel() const;
  /// Elements of all ranks' shards together: sharded_numel * group_size, or unsharded_numel when not sharded.
  std::int64_t padded_numel() const;
  /// Elements of each rank's shard, with padding.
  std::int64_t sharded_numel() const;

  /// The elements of the flat tensor that a rank holds, without padding at the end. Precondition:
  /// 0 <= rank < group_size.
  index_range shard_range(std::int32_t rank) const;
  /// Elements of padding at the end of a rank's shard.
  std::int64_t shard_numel_padded(std::int32_t rank) const;
  shard_parameter_info shard_info(std::int32_t rank, std::size_t parameter) const;
  flat_shard_metadata shard_metadata(std::int32_t rank) const;

  /// Fills all padding of a rank's shard: 42 between parameters, 0 at the end.
  /// \param shard  1-D, sharded_numel elements, on the host
  /// \errors errc::shape_mismatch, errc::dtype_mismatch, errc::unsupported (memory of a device), naming the rank
  result<void> fill_padding(std::int32_t rank, const tensor_view& shard) const;

  friend bool operator==(const flat_parameter& a, const flat_parameter& b);

 private:
  struct description;
  std::shared_ptr<const description> description_;
};

}  // namespace shardmesh
