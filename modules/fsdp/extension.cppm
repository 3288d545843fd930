// SPDX-License-Identifier: Apache-2.0
// fsdp_extension: the functions that FSDP calls on a scheme that cut the parameters before FSDP, and the implementation
// for tensor parallelism. The distribution of the resulting flat parameters is in parallel_parameters.
export module shardmesh.fsdp:extension;

import shardmesh.std;
import shardmesh.state;
import :chunk;
import :mover;
import :parallel_parameters;
import :unit;

export namespace shardmesh {

/// A parameter as FSDP flattens it: this rank's tensor, and the layout of the whole that it is part of.
template <local_tensor T>
struct flattened_parameter {
  T local;
  std::optional<layout> placed{};  // of a dtensor, over its own mesh; empty: the parameter was not cut
};

/// A scheme that has cut tensors before FSDP. The names are PyTorch's:
/// - `pre_flatten_transform(value)`: returns the tensor to flatten, and the layout for the way back;
/// - `post_unflatten_transform(local, placed, rank)`: undoes the first transform;
/// - `chunk_tensor(value, rank, group)`: this rank's chunk as a sharded tensor, nested if the value was cut before;
/// - `chunk_dtensor(value, rank)`: the same chunk as a dtensor of the whole mesh;
/// - `pre_load_state_dict_transform(tensor)`: the sharded tensor to load from, given a result of `chunk_tensor`;
/// - `all_gather_dtensor(tensor, comm)`: gathers a dtensor that `chunk_dtensor` made. Collective.
/// Only the last one communicates.
/// Source: torch.distributed.fsdp._fsdp_extensions.FSDPExtensions
template <class E, class T>
concept fsdp_extension =
    allocatable_tensor<T> &&
    requires(const E& e, state_value<T> value, T tensor, const layout& placed, sharded_tensor<T> sharded,
             const dtensor<T>& cut, std::int32_t rank, const rank_group& group, communicator_ref comm) {
      { e.pre_flatten_transform(std::move(value)) } -> std::same_as<result<flattened_parameter<T>>>;
      { e.post_unflatten_transform(std::move(tensor), placed, rank) } -> std::same_as<result<dtensor<T>>>;
      { e.chunk_tensor(value, rank, group) } -> std::same_as<result<sharded_tensor<T>>>;
      { e.chunk_dtensor(value, rank) } -> std::same_as<result<dtensor<T>>>;
      { e.pre_load_state_dict_transform(std::move(sharded)) } -> std::same_as<result<sharded_tensor<T>>>;
      { e.all_gather_dtensor(cut, comm) } -> std::same_as<result<T>>;
    };

}  // namespace shardmesh

// Exported, but internal to this room, like the `detail` of mover.
export namespace shardmesh::detail {

// Returns `l` as a layout over the whole of `mesh`. A layout over the last mesh dimensions, at `rank`'s coordinate of
// the others, is replicated over those others.
result<layout> lifted_layout(const layout& l, const device_mesh& mesh, std::int32_t rank);

// Checks that every rank holds in `has` all elements that it needs for `wants`. Both have the same mesh.
result<void> check_holds(const layout& has, const layout& wants);

// Copies the elements that this rank needs for `wants` out of its local tensor of `has`.
result<void> copy_held(const layout& has, const const_tensor_view& from, const layout& wants, const tensor_view& to,
                       std::int32_t rank);

// Collective: moves this rank's local tensor of `from` into that of `to`. `mine` is an error when this rank could not
// allocate the destination; every rank then gets that error.
result<void> gather_layout(const layout& from, const const_tensor_view& source, const layout& to,
                           const tensor_view& destination, const result<void>& mine, communicator_ref comm,
                           const call_options& call);

// The memory order of a local tensor's dimensions, as in `parallel_parameter_info`; empty when the tensor is not dense.
// Dimensions of size 1 are ordered by their strides, so that ranks with uneven parts get the same order.
extents flatten_order(const const_tensor_view& local);

error no_tensor(value_kind kind);

}  // namespace shardmesh::detail

export namespace shardmesh {

/// The `fsdp_extension` for tensor parallelism: FSDP cuts over one dimension of a mesh, and tensor parallelism has cut
/// over others. `fsdp_dim` is 0 on a (dp, tp) mesh and 1 on (replicate, shard, tp). Dtensors are over the whole mesh
/// (Replicate on FSDP's dimension), or over its last dimensions, at this rank's coordinate of the others. Tensors are
/// the same on all ranks.
/// Source: torch.distributed.tensor.parallel.fsdp.DTensorExtensions
struct tensor_parallel_extension {
  device_mesh mesh;
  std::size_t fsdp_dim = 0;
  std::int32_t dim = 0;  // tensor dimension that FSDP cuts
  rank_group ranks{};    // global ranks of the mesh's ranks, as in the groups; default: the same numbers

  /// Returns the local tensor of a dtensor and its layout, or a tensor as it is. Nothing is copied.
  /// \errors errc::invalid_argument (no tensor, or none on this rank)
  template <allocatable_tensor T>
  result<flattened_parameter<T>> pre_flatten_transform(state_value<T> value) const {
    if (T* tensor = value.tensor()) return flattened_parameter<T>{std::move(*tensor)};
    dtensor<T>* placed = value.dtensor();
    if (!placed || !placed->has_local()) return detail::no_tensor(value.kind());
    return flattened_parameter<T>{std::move(placed->local()), placed->layout()};
  }

  /// Rebuilds the dtensor from its local tensor.
  /// \errors errc::shape_mismatch (the local shape differs)
  template <allocatable_tensor T>
  result<dtensor<T>> post_unflatten_transform(T local, const layout& placed, std::int32_t rank) const {
    return dtensor<T>::make(placed, rank, std::optional<T>(std::move(local)));
  }

  /// Returns this rank's chunk as a sharded tensor.
  /// \param rank   this process in the group
  /// \param group  the ranks that hold the same part as this one, as global ranks
  /// \errors errc::invalid_argument (no tensor; `group` and `ranks` give this rank different global ranks), those of
  ///         `shardmesh::chunk_tensor`
  /// Cost: a copy of the chunk
  template <allocatable_tensor T>
  result<sharded_tensor<T>> chunk_tensor(const state_value<T>& value, std::int32_t rank,
                                         const rank_group& group) const {
    const chunk_options options{.dim = dim};
    if (const T* tensor = value.tensor()) return create_chunk_sharded_tensor<T>(*tensor, rank, group, options);
    if (const auto* sharded = value.sharded_tensor()) return shardmesh::chunk_tensor<T>(*sharded, rank, group, options);
    if (const auto* placed = value.dtensor()) return shardmesh::chunk_tensor<T>(*placed, rank, group, ranks, options);
    return detail::no_tensor(value.kind());
  }

  /// Returns this rank's part in the layout of `strided_chunk_layout`. The rank already holds that part, so nothing is
  /// sent.
  /// \param rank  in the numbering of the mesh
  /// \errors errc::invalid_argument (no tensor, another mesh, cut along FSDP's dimension), errc::unsupported when a
  ///         rank would need another rank's elements (uneven cuts that do not nest): `sharded_state_dict` moves them
  /// Cost: a copy of the chunk; O(mesh) boxes
  /// Source: DTensorExtensions.chunk_dtensor, which gives [Shard(0), Shard(0)] where both cut dimension 0, and
  ///         communicates for that. It cuts whole tensors along the first mesh dimension, and is wrong where tensor
  ///         parallelism is uneven.
  template <allocatable_tensor T>
  result<dtensor<T>> chunk_dtensor(const state_value<T>& value, std::int32_t rank) const {
    const T* local = value.tensor();
    const dtensor<T>* placed = value.dtensor();
    if (placed && placed->has_local()) local = &placed->local();
    if (!local) return detail::no_tensor(value.kind());
    if (auto plain = check_tensor(*local); !plain) return std::move(plain).error();
    const const_tensor_view from = view_of(*local);
    auto has = placed ? detail::lifted_layout(placed->layout(), mesh, rank)
                      : layout::make(mesh, std::vector<placement>(mesh.rank(), placement::replicate()), from.sizes);
    if (!has) return std::move(has).error();
    auto wants = strided_chunk_layout(*has, fsdp_dim, dim);
    if (!wants) return std::move(wants).error();
    if (auto held = detail::check_holds(*has, *wants); !held) return std::move(held).error();
    if (!mesh.coordinate_of(rank)) return dtensor<T>::make(*std::move(wants), rank, std::nullopt);
    auto made = detail::allocated<T>(from.type, wants->local_shape(rank), from.where);
    if (!made) return std::move(made).error();
    if (auto copied = detail::copy_held(*has, from, *wants, adapter<T>::view(*made), rank); !copied)
      return std::move(copied).error();
    return dtensor<T>::make(*std::move(wants), rank, std::optional<T>(*std::move(made)));
  }

  /// Returns the inner tensor of a tensor with one nested shard, or else the tensor itself. `load_state_dict` accepts
  /// either. For a parallel unit, it also accepts tensors with the shape of this rank's column, cut over the column's
  /// ranks.
  /// \errors errc::unsupported for several nested shards, which `flatten_nested_shards` reduces to one level
  template <allocatable_tensor T>
  result<sharded_tensor<T>> pre_load_state_dict_transform(sharded_tensor<T> tensor) const {
    if (tensor.nesting() == 0) return tensor;
    if (tensor.local_shards().size() != 1)
      return fail(errc::unsupported, "a sharded tensor with several nested shards has no single inner tensor")
          .with_values("one shard", std::to_string(tensor.local_shards().size()))
          .with_hint("call flatten_nested_shards first");
    return sharded_tensor<T>(std::move(tensor.local_shards()[0].nested()));
  }

  /// Gathers the part that this rank's column holds: the result is Replicate along FSDP's dimension, and still cut by
  /// tensor parallelism. Collective over a communicator of the mesh's ranks; blocks.
  /// \errors those of the executor; errors that `allocate` throws, on every rank
  /// Cost: bytes that ranks lack travel once.
  template <allocatable_tensor T>
  result<T> all_gather_dtensor(const dtensor<T>& tensor, communicator_ref comm, const call_options& call = {}) const {
    if (!tensor.has_local())
      return fail(errc::invalid_argument, "a rank outside the mesh has nothing to gather").with_rank(tensor.rank());
    auto whole = gathered_layout(tensor.layout(), fsdp_dim);
    if (!whole) return std::move(whole).error();
    const const_tensor_view from = view_of(tensor.local());
    auto made = detail::allocated<T>(from.type, whole->local_shape(tensor.rank()), from.where);
    const result<void> mine = made ? result<void>() : result<void>(made.error());
    auto moved = detail::gather_layout(tensor.layout(), from, *whole, made ? adapter<T>::view(*made) : tensor_view{},
                                       mine, comm, call);
    if (!moved) return std::move(moved).error();
    return made;
  }
};

/// Moves this rank's placement in a chunk spec to the device where its tensor really is; other specs are unchanged.
/// This matters for optimizer state that was moved to the CPU.
/// \param rank   global rank
/// \param where  device of this rank's tensor
/// Cost: O(placements).
/// Source: torch.distributed.tensor.parallel.fsdp._rewrite_spec_if_needed
sharding_spec rewrite_spec_if_needed(sharding_spec spec, device where, std::int32_t rank);

/// Returns the placement of a rank's shard when all nodes have the same number of devices: "rank:9/cuda:1" with 4 per
/// node, or "rank:9/cpu".
/// \errors errc::invalid_argument (no such device type; less than one device per node, unless the type is cpu)
/// Source: torch.distributed.fsdp._shard_utils._get_remote_device_str, which divides by zero
result<remote_device> remote_device_of(std::int32_t rank, std::string_view device_type, std::int32_t devices_per_node);

/// A parameter to flatten: a tensor that all ranks hold, or a dtensor.
template <local_tensor T>
struct named_parameter {
  std::string fqn;
  state_value<T> value;
};

/// A unit, and the tensor whose memory it views.
template <local_tensor T>
struct flattened_unit {
  T shard;
  fsdp_unit unit;
};

/// Options of `flatten_parameters`.
struct flatten_parameters_options {
  std::string prefix{};        // name of the module
  std::int32_t ranks = 0;      // size of the communicator; 0: that of the mesh
  std::int64_t alignment = 0;  // as in flat_parameter_options
  bool sharded = true;         // as in flat_parameter_options
  std::vector<shared_parameter_info> shared{};
};

/// Flattens parameters, which each rank holds as tensor parallelism left them, into this rank's flat shard. Fills the
/// padding, and makes the unit over the shard. A dense tensor keeps its memory order (channels_last), which is the same
/// on all ranks; other tensors are flattened row-major. No communication.
/// \param rank  in the mesh's numbering; one of its ranks
/// \errors those of the extension and of `parallel_parameters::make`, each naming the parameter
/// Cost: a copy of the shard.
/// Source: torch.distributed.fsdp._flat_param.FlatParamHandle._init_flat_param_and_metadata
template <allocatable_tensor T, fsdp_extension<T> E>
result<flattened_unit<T>> flatten_parameters(std::vector<named_parameter<T>> parameters, const E& extension,
                                             const device_mesh& mesh, std::size_t fsdp_dim, std::int32_t rank,
                                             const flatten_parameters_options& options = {}) {
  if (!mesh.coordinate_of(rank))
    return fail(errc::invalid_argument, "a rank outside the mesh has nothing to flatten").with_rank(rank);
  std::vector<T> locals;
  std::vector<parallel_parameter_info> infos;
  for (named_parameter<T>& p : parameters) {
    auto flattened = extension.pre_flatten_transform(std::move(p.value));
    if (!flattened) return std::move(flattened).error().with_key(p.fqn);
    const tensor_view view = adapter<T>::view(flattened->local);
    parallel_parameter_info info{std::move(p.fqn), view.sizes, {}, view.type};
    info.order = detail::flatten_order(view);
    info.requires_grad = properties_of(flattened->local).requires_grad;
    if (flattened->placed) {
      auto lifted = detail::lifted_layout(*flattened->placed, mesh, rank);
      if (!lifted) return std::move(lifted).error().with_key(info.fqn);
      info.shape = lifted->shape();
      info.placements = lifted->placements();
    }
    infos.push_back(std::move(info));
    locals.push_back(std::move(flattened->local));
  }
  auto parallel =
      parallel_parameters::make(mesh, options.ranks == 0 ? mesh.rank_limit() : options.ranks, std::move(infos),
                                options.shared, {fsdp_dim, options.alignment, options.sharded, split_rule{}});
  if (!parallel) return std::move(parallel).error();
  const flat_parameter& flat = parallel->flat(*parallel->column_of(rank));
  const std::int32_t position = *parallel->group().position(rank);
  const dtype type = locals.empty() ? dtype::float32 : flat.type();
  const device where = locals.empty() ? device{} : adapter<T>::view(locals[0]).where;
  auto shard = detail::allocated<T>(type, {flat.sharded_numel()}, where);
  if (!shard) return std::move(shard).error();
  const tensor_view memory = adapter<T>::view(*shard);
  if (!locals.empty())
    if (auto filled = flat.fill_padding(position, memory); !filled) return std::move(filled).error();
  for (std::size_t i = 0; i < locals.size(); ++i) {
    auto slots = slots_of(flat, i, position, memory);
    if (!slots) return std::move(slots).error();
    const auto boxes = held_boxes(flat, i, position);
    for (std::size_t s = 0; s < boxes.size(); ++s)
      if (auto copied = copy_between((*slots)[s], subview(adapter<T>::view(locals[i]), boxes[s].where)); !copied)
        return std::move(copied).error().with_key(flat.parameters()[i].fqn);
  }
  fsdp_unit unit = parallel_unit(options.prefix, *std::move(parallel), rank, memory);
  return flattened_unit<T>{*std::move(shard), std::move(unit)};
}

}  // namespace shardmesh
