// SPDX-License-Identifier: Apache-2.0
// Loads state dicts into flat parameters and buffers. A state dict may have whole tensors on all ranks or on some,
// sharded tensors, dtensors, or flat shards of any number of ranks. Making state dicts is in save.
export module shardmesh.fsdp:load;

import shardmesh.std;
import shardmesh.state;
import :chunk;
import :model;
import :mover;

export namespace shardmesh {

/// The treatment of keys that only one side has.
enum class load_mode : std::uint8_t {
  strict,  // fail with an error that names them, and load nothing
  report,  // load all common keys, and report the others
  ignore,  // load all common keys
};

/// Options of `load_state_dict`. `mode` must be the same on every rank. By default, a key that only one side has is an
/// error, and so is a cast that loses values.
struct load_state_options {
  load_mode mode = load_mode::strict;
  bool allow_narrowing = false;  // allow casts that lose values, as PyTorch's copy_ always does
  rank_group ranks{};  // global ranks of the communicator's ranks, for sharded tensors; default: the same numbers
  std::int64_t memory_bytes = 0;  // limit of the messages alive at a time; 0: the default of plan_options
  call_options call{};
};

/// The outcome of `load_state_dict` for one key.
enum class load_status : std::uint8_t {
  loaded,      // its elements were loaded
  shared,      // not read: another name of the same parameter was loaded
  superseded,  // not read: its unit's flat parameter was loaded
  missing,     // no rank's state dict has it
  unexpected,  // some rank's state dict has it, but the model does not
};

/// A key of the model or of a state dict, and the outcome for it.
struct load_entry {
  std::string key;
  load_status status = load_status::loaded;
  friend bool operator==(const load_entry&, const load_entry&) = default;
};

/// The outcome for every key: the model's keys in its order, then the unexpected ones, sorted. `entries` is the same on
/// every rank.
struct load_state_report {
  std::vector<load_entry> entries;  // load_mode::ignore leaves out missing and unexpected keys
  fsdp_profile profile;
  std::vector<std::string> keys(load_status status) const;
};

}  // namespace shardmesh

export namespace shardmesh::detail {

// The value that this rank's state dict has under a key of the model.
struct offered_value {
  bool is_offered = false;
  extents shape;
  dtype type = dtype::undefined;
  std::optional<distribution> where;  // of a sharded value; empty: the whole is here
  const_tensor_binding memory;
};

result<load_state_report> load_offers(const fsdp_model& model, communicator_ref comm,
                                      result<std::vector<offered_value>> offers, std::vector<std::string> unexpected,
                                      const load_state_options& options);

template <local_tensor T>
result<offered_value> offer(const T& tensor) {
  if (auto plain = check_tensor(tensor); !plain) return std::move(plain).error();
  const const_tensor_view view = view_of(tensor);
  return offered_value{true, view.sizes, view.type, std::nullopt, {{view}}};
}

template <local_tensor T>
result<offered_value> offer(const sharded_tensor<T>& tensor, const rank_group& ranks) {
  if (tensor.nesting() > 0)
    return fail(errc::unsupported, "a sharded tensor whose shards are sharded cannot be loaded")
        .with_hint("call flatten_nested_shards first");
  offered_value made{true, tensor.size(), tensor.metadata().properties.type, std::nullopt, {}};
  auto where = distribution_of(tensor.metadata(), ranks);
  if (!where) return std::move(where).error();
  made.where = *std::move(where);
  for (const shard<T>& one : tensor.local_shards()) made.memory.slots.push_back(view_of(one.tensor()));
  return made;
}

template <local_tensor T>
result<offered_value> offer(const dtensor<T>& tensor) {
  offered_value made{true, tensor.size(), dtype::undefined, std::nullopt, {}};
  auto where = distribute(tensor.layout());
  if (!where) return std::move(where).error();
  made.where = *std::move(where);
  if (tensor.has_local()) made.memory.slots = {view_of(tensor.local())};
  if (tensor.has_local()) made.type = made.memory.slots[0].type;
  return made;
}

template <local_tensor T>
result<offered_value> offer(const state_value<T>& value, const rank_group& ranks) {
  if (const auto* tensor = value.tensor()) return offer<T>(*tensor);
  if (const auto* sharded = value.sharded_tensor()) return offer<T>(*sharded, ranks);
  if (const auto* placed = value.dtensor()) return offer<T>(*placed);
  return fail(errc::invalid_argument, "the state dict has no tensor under the name of a parameter")
      .with_values("a tensor", std::string(name(value.kind())));
}

// The values that a state dict has for the entries of the model, in the order of `entries_of(model, all)`.
template <local_tensor T>
result<std::vector<offered_value>> offers_of(const fsdp_model& model, const state_dict<T>& state,
                                             const rank_group& ranks) {
  auto entries = entries_of(model, fsdp_entries::all);
  if (!entries) return std::move(entries).error();
  std::vector<offered_value> offers;
  for (const fsdp_entry& entry : *entries) {
    const state_value<T>* value = state.find(path{entry.key});
    offers.emplace_back();
    if (!value) continue;
    auto made = offer(*value, ranks);
    if (!made) return std::move(made).error().with_key(entry.key);
    offers.back() = *std::move(made);
  }
  return offers;
}

// The keys of a state dict: top-level ones as they are, deeper ones as exact paths.
template <local_tensor T>
std::vector<std::string> keys_of(const state_dict<T>& state) {
  std::vector<std::string> keys;
  for (const path& where : state.spec().leaf_paths())
    keys.push_back(where.size() == 1 && !where[0].is_index() ? std::string(where[0].name()) : to_string(where));
  return keys;
}

}  // namespace shardmesh::detail

export namespace shardmesh {

/// Loads the elements of a state dict into the model's flat shards and tensors. Collective; blocks; every rank of the
/// communicator calls it with its own state dict.
/// A whole tensor may be on any ranks; ranks without it receive it from one that has it. A sharded value may have any
/// distribution: shards of other meshes, of other numbers of ranks, or of other splits. For a parallel unit it may also
/// be the shards of one column's part, held by the ranks of that column (`pre_load_state_dict_transform`). A parameter
/// is loaded under any of its names. If a unit's "_flat_param" is there, it is loaded instead of the unit's parameters.
/// Padding is not modified.
/// \errors errc::missing_key (strict) naming the first 100 missing and unexpected keys; errc::shape_mismatch,
///         errc::narrowing, errc::disagreement (different dtypes or models, whole on one rank and sharded on another),
///         errc::unsupported (memory that no backend reaches), each naming the key and the ranks;
///         errc::invalid_argument (`ranks` has the wrong size); those of the executor. If one rank fails, every rank
///         gets an error. An error before bytes move leaves the model unchanged
/// Cost: one all_gather of a few bytes per key, and a second one of each rank's own boxes when ranks describe sharded
///       values differently. Bytes that a rank needs and lacks travel once.
/// Source: torch.distributed.fsdp._state_dict_utils, the pre-load hooks, which gather every unit whole
template <local_tensor T>
result<load_state_report> load_state_dict(const fsdp_model& model, const state_dict<T>& state, communicator_ref comm,
                                          const load_state_options& options = {}) {
  const auto ranks = detail::numbering_of(options.ranks, comm.size(), false);
  return detail::load_offers(
      model, comm,
      ranks ? detail::offers_of(model, state, *ranks) : result<std::vector<detail::offered_value>>(ranks.error()),
      detail::keys_of(state), options);
}

}  // namespace shardmesh
