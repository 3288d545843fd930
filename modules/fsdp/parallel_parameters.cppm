// SPDX-License-Identifier: Apache-2.0
// parallel_parameters: parameters that tensor parallelism has cut over some dimensions of a mesh before FSDP flattens
// what is left of them over another one. Not here: memory, state dicts.
export module shardmesh.fsdp:parallel_parameters;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import :flat_parameter;
import :shard_group;

export namespace shardmesh {

/// One parameter of a unit, as the whole that tensor parallelism cuts.
struct parallel_parameter_info {
  std::string fqn;                      // within the unit: "up.weight"
  extents shape;                        // of the whole parameter
  std::vector<placement> placements{};  // per mesh dimension, Replicate on FSDP's own; empty: Replicate on all
  dtype type = dtype::float32;
  bool requires_grad = true;
  extents order{};  // of every local tensor: dimensions from the slowest in memory to the fastest; empty: row-major
  friend bool operator==(const parallel_parameter_info&, const parallel_parameter_info&) = default;
};

/// How `parallel_parameters::make` cuts: which mesh dimension is FSDP's, and how flat parameters are laid out and cut
/// over it.
struct parallel_options {
  std::size_t fsdp_dim = 0;    // the mesh dimension over which flat parameters are sharded
  std::int64_t alignment = 0;  // as of flat_parameter_options
  bool sharded = true;         // as of flat_parameter_options
  split_rule rule{};           // how tensor parallelism cuts
};

/// The parameters of one FSDP unit over an n-d mesh: (dp, tp), (replicate, shard, tp), or any other order. Ranks that
/// hold the same parts before FSDP are a *column*: each column has a flat parameter of its own, of local shapes, which
/// differ where cuts are uneven. Mesh dimensions along which nothing is cut hold replicas: hybrid sharding needs no
/// word. An immutable value without memory, cheap to copy, the same on every rank.
/// Source: fully_shard or FullyShardedDataParallel over `mesh["dp"]` of what parallelize_module cut over `mesh["tp"]`.
class parallel_parameters {
 public:
  /// None: of a unit that is not parallel.
  parallel_parameters();
  /// \param mesh   over ranks of the communicator
  /// \param ranks  of the communicator
  /// \errors errc::out_of_bounds (no mesh dimension `fsdp_dim`, a mesh beyond the communicator),
  ///         errc::invalid_argument (cut on FSDP's dimension, an order that is none), errc::mixed_partial (a parameter
  ///         is no term), those of `layout::make` and `flat_parameter::make`; each names the parameter
  /// Cost: O(columns * parameters).
  static result<parallel_parameters> make(const device_mesh& mesh, std::int32_t ranks,
                                          std::vector<parallel_parameter_info> parameters,
                                          std::vector<shared_parameter_info> shared = {},
                                          const parallel_options& options = {});

  /// True when it was made by default: the unit is not parallel.
  bool is_none() const { return !description_; }
  // The rest has a precondition: !is_none().

  const device_mesh& mesh() const;
  std::size_t fsdp_dim() const;
  std::span<const parallel_parameter_info> parameters() const;
  /// What tensor parallelism alone gives the ranks: Replicate on FSDP's dimension.
  const layout& placed(std::size_t parameter) const;
  /// The layout of FSDP's shards of tensor dimension `dim`: StridedShard(dim, k) on FSDP's mesh dimension when mesh
  /// dimensions behind it cut that dimension into k, else Shard(dim); the rest as placed. Scalars as placed.
  /// \errors those of `layout::make` Source: torch.distributed.fsdp._fully_shard._fsdp_param.FSDPParam
  result<layout> sharded(std::size_t parameter, std::int32_t dim = 0) const;

  std::int32_t columns() const;
  /// Nothing for a rank outside the mesh.
  std::optional<std::int32_t> column_of(std::int32_t rank) const;
  /// A rank of that column.
  std::int32_t rank_in(std::int32_t column) const;
  const flat_parameter& flat(std::int32_t column) const;
  /// The ranks of one column by their position along FSDP's dimension; the others are not members.
  const shard_group& group(std::int32_t column) const;
  /// All ranks of the mesh by their position along FSDP's dimension.
  const shard_group& group() const;
  /// All ranks of the mesh; position p of column c is number c * group().size() + p, so only true replicas share one.
  const shard_group& cells() const;

 private:
  struct description;
  std::shared_ptr<const description> description_;
};

/// The layout in which FSDP along `fsdp_dim` cuts dimension `dim` of what each rank holds of `l` already: as
/// `parallel_parameters::sharded`. Differs from `chunk_layout`, which cuts the whole before the others do.
/// \errors errc::out_of_bounds (no such mesh or tensor dimension), errc::invalid_argument (cut there already)
result<layout> strided_chunk_layout(const layout& l, std::size_t fsdp_dim, std::int32_t dim = 0);

/// Who holds what of one parameter: in every column the boxes of the flat shards inside what the column holds. Slots of
/// a rank are the `held_boxes` of its column's flat parameter. Columns that hold the same (replicated over tensor
/// parallelism) but are cut elsewhere (other parameters differ in size) are described by the common pieces, so that
/// overlapping boxes are equal boxes. \errors those of the builder Cost: O(ranks * boxes), then a sort.
result<distribution> distribution_of(const parallel_parameters& unit, std::size_t parameter);

/// What a tensor of the local shape of `rank`'s column says about the whole parameter: `inner` is over the ranks of the
/// communicator. \errors those of the builder. Precondition: the rank is in the mesh.
result<distribution> within_column(const parallel_parameters& unit, std::size_t parameter, std::int32_t rank,
                                   const distribution& inner);

/// Who holds what of all flat tensors, one column after the other: shape [sum of the columns' unsharded_numel].
result<distribution> flat_distribution(const parallel_parameters& unit);

/// Where a column's flat tensor begins in it. `column` may be columns(): the end.
std::int64_t flat_offset(const parallel_parameters& unit, std::int32_t column);

}  // namespace shardmesh
