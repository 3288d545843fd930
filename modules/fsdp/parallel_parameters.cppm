// SPDX-License-Identifier: Apache-2.0
// parallel_parameters: parameters that tensor parallelism has cut over some dimensions of a mesh, before FSDP flattens
// the parts over another one. It owns no memory. State dicts are in save and load.
export module shardmesh.fsdp:parallel_parameters;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import :flat_parameter;
import :shard_group;

export namespace shardmesh {

/// One parameter of a unit: the whole that tensor parallelism cuts.
struct parallel_parameter_info {
  std::string fqn;                      // name within the unit: "up.weight"
  extents shape;                        // of the whole parameter
  std::vector<placement> placements{};  // one per mesh dimension, Replicate on FSDP's; empty: Replicate on all
  dtype type = dtype::float32;
  bool requires_grad = true;
  extents order{};  // memory order of all local tensors, slowest dimension first; empty: row-major
  friend bool operator==(const parallel_parameter_info&, const parallel_parameter_info&) = default;
};

/// Options of `parallel_parameters::make`: FSDP's mesh dimension, and how flat parameters are laid out and cut over it.
struct parallel_options {
  std::size_t fsdp_dim = 0;    // the mesh dimension over which flat parameters are sharded
  std::int64_t alignment = 0;  // as in flat_parameter_options
  bool sharded = true;         // as in flat_parameter_options
  split_rule rule{};           // how tensor parallelism cuts
};

/// The parameters of one FSDP unit over an n-d mesh: (dp, tp), (replicate, shard, tp), or any other order. Ranks that
/// hold the same parts before FSDP form a *column*. Each column has its own flat parameter of local shapes, which
/// differ between columns where cuts are uneven. Mesh dimensions that cut nothing hold replicas, so hybrid sharding
/// needs no option. An immutable value without memory, cheap to copy, the same on every rank.
/// Source: fully_shard or FullyShardedDataParallel over `mesh["dp"]`, applied to a model that parallelize_module cut
///         over `mesh["tp"]`
class parallel_parameters {
 public:
  /// Makes an empty value, for a unit that is not parallel.
  parallel_parameters();
  /// Cuts the parameters over the mesh, and lays out one flat parameter per column.
  /// \param mesh   over ranks of the communicator
  /// \param ranks  size of the communicator
  /// \errors errc::out_of_bounds (no mesh dimension `fsdp_dim`, a mesh beyond the communicator), errc::invalid_argument
  ///         (cut on FSDP's dimension, an invalid order), errc::mixed_partial (a Partial placement), those of
  ///         `layout::make` and `flat_parameter::make`; each names the parameter
  /// Cost: O(columns * parameters).
  static result<parallel_parameters> make(const device_mesh& mesh, std::int32_t ranks,
                                          std::vector<parallel_parameter_info> parameters,
                                          std::vector<shared_parameter_info> shared = {},
                                          const parallel_options& options = {});

  /// Returns whether this was default-constructed, for a unit that is not parallel.
  bool is_none() const { return !description_; }
  // Precondition of all functions below: !is_none().

  const device_mesh& mesh() const;
  std::size_t fsdp_dim() const;
  std::span<const parallel_parameter_info> parameters() const;
  /// The layout that tensor parallelism alone gives a parameter: Replicate on FSDP's dimension.
  const layout& placed(std::size_t parameter) const;
  /// Returns the layout of FSDP's shards of tensor dimension `dim`. On FSDP's mesh dimension it is StridedShard(dim, k)
  /// when later mesh dimensions cut `dim` into k pieces, else Shard(dim). The other placements are those of `placed`. A
  /// scalar has the layout `placed`.
  /// \errors those of `strided_chunk_layout`
  /// Source: torch.distributed.fsdp._fully_shard._fsdp_param.FSDPParam
  result<layout> sharded(std::size_t parameter, std::int32_t dim = 0) const;

  std::int32_t columns() const;
  /// The column of a rank; empty for a rank outside the mesh.
  std::optional<std::int32_t> column_of(std::int32_t rank) const;
  /// A rank of that column.
  std::int32_t rank_in(std::int32_t column) const;
  const flat_parameter& flat(std::int32_t column) const;
  /// The ranks of one column, by their position along FSDP's dimension; all other ranks are not members.
  const shard_group& group(std::int32_t column) const;
  /// All ranks of the mesh, by their position along FSDP's dimension.
  const shard_group& group() const;
  /// All ranks of the mesh. Position p of column c becomes number c * group().size() + p, so that only true replicas
  /// share a number.
  const shard_group& cells() const;

 private:
  struct description;
  std::shared_ptr<const description> description_;
};

/// Returns the layout in which FSDP along `fsdp_dim` cuts dimension `dim` of each rank's part of `l`, as in
/// `parallel_parameters::sharded`. `chunk_layout`, in contrast, cuts the whole before the other dimensions do.
/// \errors errc::out_of_bounds (no such mesh or tensor dimension), errc::invalid_argument (`fsdp_dim` already cuts),
///         errc::unsupported (a mesh dimension on the right cuts segments of `dim`)
result<layout> strided_chunk_layout(const layout& l, std::size_t fsdp_dim, std::int32_t dim = 0);

/// Returns the distribution of one parameter: in every column, the boxes of the flat shards inside the column's part. A
/// rank's slots are the `held_boxes` of its column's flat parameter.
/// Columns may hold the same part (replicated over tensor parallelism) but cut it at different places, because other
/// parameters differ in size. Such columns are described by their common pieces, so that overlapping boxes are equal.
/// \errors those of the builder
/// Cost: O(ranks * boxes), then a sort.
result<distribution> distribution_of(const parallel_parameters& unit, std::size_t parameter);

/// Turns a distribution of a tensor with the local shape of `rank`'s column into one of the whole parameter. `inner` is
/// over the ranks of the communicator. Precondition: the rank is in the mesh.
/// \errors those of the builder
result<distribution> within_column(const parallel_parameters& unit, std::size_t parameter, std::int32_t rank,
                                   const distribution& inner);

/// Returns the distribution of all flat tensors, one column after the other: shape [sum of the columns'
/// unsharded_numel].
result<distribution> flat_distribution(const parallel_parameters& unit);

/// Returns the element of that shape at which a column's flat tensor begins. `column` may be columns(): the end.
std::int64_t flat_offset(const parallel_parameters& unit, std::int32_t column);

}  // namespace shardmesh
