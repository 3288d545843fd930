// SPDX-License-Identifier: Apache-2.0
// fsdp_extension: what FSDP asks of someone who has cut parameters before it, and its model for tensor parallelism.
// Not here: who holds what of the flat parameters that come out (parallel_parameters).
export module shardmesh.fsdp:extension;

import shardmesh.std;
import shardmesh.state;
import :chunk;
import :mover;
import :parallel_parameters;
import :unit;

export namespace shardmesh {

/// A parameter as FSDP flattens it: what this rank holds, and what it was part of.
template <local_tensor T>
struct flattened_parameter {
  T local;
  std::optional<layout> placed{};  // of a dtensor: over its own mesh; nothing: it was not cut
};

/// Someone who has cut tensors before FSDP. Names are PyTorch's:
/// - `pre_flatten_transform(value)`: what goes into the flat parameter, and what is needed to undo that;
/// - `post_unflatten_transform(local, placed, rank)`: undoes it;
/// - `chunk_tensor(value, rank, group)`: this rank's chunk as a sharded tensor, nested where it was cut before;
/// - `chunk_dtensor(value, rank)`: the same as a dtensor of the whole mesh;
/// - `pre_load_state_dict_transform(tensor)`: the sharded tensor to load from, of what `chunk_tensor` made;
/// - `all_gather_dtensor(tensor, comm)`: what `chunk_dtensor` cut. Collective.
/// Nothing but the last communicates. Source: torch.distributed.fsdp._fsdp_extensions.FSDPExtensions
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

// Exported as `detail` of the room: mover is too.
export namespace shardmesh::detail {

// `l` over the whole of `mesh`: as it is, or lifted from the last mesh dimensions that contain `rank`.
result<layout> lifted_layout(const layout& l, const device_mesh& mesh, std::int32_t rank);

// Every rank holds, with `has`, what it has to with `wants`; the mesh is the same.
result<void> check_holds(const layout& has, const layout& wants);

// Copies what `wants` needs on this rank out of the local tensor of `has`.
result<void> copy_held(const layout& has, const const_tensor_view& from, const layout& wants, const tensor_view& to,
                       std::int32_t rank);

// Collective: moves this rank's local tensor of `from` into that of `to`. `mine` is an error when this rank has no
// memory for it: every rank gets it.
result<void> gather_layout(const layout& from, const const_tensor_view& source, const layout& to,
                           const tensor_view& destination, const result<void>& mine, communicator_ref comm,
                           const call_options& call);

// The order of a local tensor's dimensions in memory, as of `parallel_parameter_info`; empty where it is not
// dense. Dimensions of size 1 stand where their strides say, so that ranks with uneven parts say the same.
extents flatten_order(const const_tensor_view& local);

error no_tensor(value_kind kind);

}  // namespace shardmesh::detail

export namespace shardmesh {

/// FSDP over one dimension of a mesh of parameters that tensor parallelism has cut over others: (dp, tp) with fsdp_dim
/// 0, (replicate, shard, tp) with 1. Dtensors are over the whole mesh (Replicate on FSDP's dimension) or over its last
/// dimensions, at this rank's coordinate of the others; tensors are the same on all ranks.
/// Source: torch.distributed.tensor.parallel.fsdp.DTensorExtensions
struct tensor_parallel_extension {
  device_mesh mesh;
  std::size_t fsdp_dim = 0;
  std::int32_t dim = 0;  // of tensors, that FSDP cuts
  rank_group ranks{};    // global ranks of those that the mesh numbers, as of the groups; none given: numbered alike

  /// The local tensor of a dtensor and its layout; a tensor as it is. Nothing is copied.
  /// \errors errc::invalid_argument (no tensor, or none on this rank)
  template <allocatable_tensor T>
  result<flattened_parameter<T>> pre_flatten_transform(state_value<T> value) const {
    if (T* tensor = value.tensor()) return flattened_parameter<T>{std::move(*tensor)};
    dtensor<T>* placed = value.dtensor();
    if (!placed || !placed->has_local()) return detail::no_tensor(value.kind());
    return flattened_parameter<T>{std::move(placed->local()), placed->layout()};
  }

  /// \errors errc::shape_mismatch (another local shape)
  template <allocatable_tensor T>
  result<dtensor<T>> post_unflatten_transform(T local, const layout& placed, std::int32_t rank) const {
    return dtensor<T>::make(placed, rank, std::optional<T>(std::move(local)));
  }

  /// \param rank  this process in the group \param group  of the ranks that hold the same as this one, global ranks
  /// \errors errc::invalid_argument (no tensor; a group that calls this rank otherwise than `ranks`), those of
  ///         `shardmesh::chunk_tensor` Cost: a copy of the chunk
  template <allocatable_tensor T>
  result<sharded_tensor<T>> chunk_tensor(const state_value<T>& value, std::int32_t rank,
                                         const rank_group& group) const {
    const chunk_options options{.dim = dim};
    if (const T* tensor = value.tensor()) return create_chunk_sharded_tensor<T>(*tensor, rank, group, options);
    if (const auto* sharded = value.sharded_tensor()) return shardmesh::chunk_tensor<T>(*sharded, rank, group, options);
    if (const auto* placed = value.dtensor()) return shardmesh::chunk_tensor<T>(*placed, rank, group, ranks, options);
    return detail::no_tensor(value.kind());
  }

  /// This rank's part in the layout of `strided_chunk_layout`: what a rank holds already, so nothing is sent.
  /// \param rank  in the numbering of the mesh
  /// \errors errc::invalid_argument (no tensor, another mesh, cut along FSDP's dimension), errc::unsupported when a
  ///         rank would need what another holds (uneven cuts that do not nest): `sharded_state_dict` moves it
  /// Cost: a copy of the chunk; O(mesh) boxes
  /// Source: DTensorExtensions.chunk_dtensor, which gives [Shard(0), Shard(0)] where both cut dimension 0 and sends for
  ///         that, cuts whole tensors along the first mesh dimension and is wrong where tensor parallelism is uneven
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

  /// The inner tensor of a tensor with one nested shard, else the tensor itself. `load_state_dict` takes those: of a
  /// unit that is parallel, also tensors of the shape of this rank's column, cut over its ranks.
  /// \errors errc::unsupported for several nested shards: `flatten_nested_shards` makes one level of them
  template <allocatable_tensor T>
  result<sharded_tensor<T>> pre_load_state_dict_transform(sharded_tensor<T> tensor) const {
    if (tensor.nesting() == 0) return tensor;
    if (tensor.local_shards().size() != 1)
      return fail(errc::unsupported, "a sharded tensor with several nested shards has no one inside")
          .with_values("one shard", std::to_string(tensor.local_shards().size()))
          .with_hint("call flatten_nested_shards first");
    return sharded_tensor<T>(std::move(tensor.local_shards()[0].nested()));
  }

  /// What this rank's column holds together: Replicate along FSDP's dimension, cut by tensor parallelism as before.
  /// Collective over a communicator of the mesh's ranks; blocks. \errors those of the executor; what `allocate` throws,
  /// on every rank
  /// Cost: what ranks lack travels once.
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

/// A chunk spec whose placement of this rank is on the device where its tensor really is; every other spec as it is.
/// Optimizer state that was moved to the CPU says so. \param rank  global \param where  of this rank's tensor
/// Cost: O(placements). Source: torch.distributed.tensor.parallel.fsdp._rewrite_spec_if_needed
sharding_spec rewrite_spec_if_needed(sharding_spec spec, device where, std::int32_t rank);

/// Where a rank's shard is on nodes that have all the same number of devices: "rank:9/cuda:1" of 4 per node,
/// "rank:9/cpu".
/// \errors errc::invalid_argument (no such device type, less than one device per node where it matters)
/// Source: torch.distributed.fsdp._shard_utils._get_remote_device_str, which divides by zero
result<remote_device> remote_device_of(std::int32_t rank, std::string_view device_type, std::int32_t devices_per_node);

/// A parameter to flatten: a tensor that all ranks hold, or a dtensor.
template <local_tensor T>
struct named_parameter {
  std::string fqn;
  state_value<T> value;
};

/// A unit and the memory that it is a view of.
template <local_tensor T>
struct flattened_unit {
  T shard;
  fsdp_unit unit;
};

/// Where and how parameters are flattened.
struct flatten_parameters_options {
  std::string prefix{};        // the module's name
  std::int32_t ranks = 0;      // of the communicator; 0: those of the mesh
  std::int64_t alignment = 0;  // as of flat_parameter_options
  bool sharded = true;         // as of flat_parameter_options
  std::vector<shared_parameter_info> shared{};
};

/// This rank's flat shard of parameters that each rank holds as tensor parallelism left them, with padding filled, and
/// the unit over it. A dense tensor keeps the order of its memory (channels_last), which is the same on all ranks;
/// others are flattened row-major. No communication. \param rank  in the mesh's numbering; one of its ranks
/// \errors those of the extension and of `parallel_parameters::make`, each naming the parameter
/// Cost: a copy of the shard. Source: torch.distributed.fsdp._flat_param.FlatParamHandle._init_flat_param_and_metadata
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
