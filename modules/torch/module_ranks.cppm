// SPDX-License-Identifier: Apache-2.0
// Saves and loads a torch::nn::Module on several ranks, each of which holds its parts. One process alone is in
// module_checkpoint, the layout of tensors in layout, and the messages of a save in collective_checkpoint.
export module shardmesh.torch:module_ranks;

import shardmesh.std;
import shardmesh.core;
import shardmesh.tree;
import shardmesh.layout;
import shardmesh.comm;
import shardmesh.checkpoint;
import shardmesh.collective_checkpoint;
import :module_state;
import :module_checkpoint;

namespace shardmesh::detail {

// An entry's path in the checkpoint, and this rank's memory.
template <tensor_view_type View>
struct placed_memory {
  path where;
  View memory;
};

// The rules by which a call places tensors.
struct placing_rules {
  const device_mesh& mesh;
  std::span<const placement_rule> rules;
  const placement_options& options;
};

// Returns this rank's state to save, or the first problem, which every rank gets. Collective. The shapes of whole
// tensors follow from the parts of all ranks, which are compared with the sizes that the rules give each rank.
result<const_local_state> held_to_save(const result<std::vector<placed_memory<const_tensor_view>>>& entries,
                                       const placing_rules& placing, communicator_ref comm, const call_options& call);
// Does the same for destinations, with the stored shapes. `load` reports entries that the checkpoint lacks.
result<local_state> held_to_load(const checkpoint_reader* reader, const result<void>& opened,
                                 const result<std::vector<placed_memory<tensor_view>>>& entries,
                                 const placing_rules& placing, communicator_ref comm, const call_options& call);

template <tensor_view_type View, torch_module M>
result<std::vector<placed_memory<View>>> placed_memory_of(std::vector<module_entry<M>>& entries, const path& inside) {
  std::vector<placed_memory<View>> memory;
  for (module_entry<M>& one : entries) {
    if (auto plain = check_tensor(one.tensor); !plain) return std::move(plain).error().with_key(one.name);
    if constexpr (std::same_as<View, const_tensor_view>)
      memory.push_back({path_inside(inside, one.name), view_of(std::as_const(one.tensor))});
    else
      memory.push_back({path_inside(inside, one.name), view_of(one.tensor)});
  }
  return memory;
}

}  // namespace shardmesh::detail

export namespace shardmesh {

struct module_rank_save_options {
  path inside{};  // as in module_load_options; the same on every rank
  rank_save_options saving{};
  placement_options placing{};
};

/// Saves a module whose ranks each hold their parts as one DCP folder. Collective; blocks. Each rank writes its own
/// file from the module's memory; data that several ranks hold is written once.
/// \param module  its tensors are this rank's parts; every rank has the same entries, with the same dtypes and numbers
///                of dimensions
/// \param mesh    contains all ranks of `comm`, in its numbering
/// \param rules   the same on every rank; entries without a rule are whole on every rank. The shape of a whole tensor
///                follows from the parts: their sizes along the mesh dimensions that cut a dimension are added.
/// \errors the same on every rank. Before a file exists: errc::shape_mismatch naming the entry, a rank whose part
///         differs from the layout, and both sizes; errc::disagreement (a rank with another mesh, or with other rules,
///         entries or dtypes); errc::invalid_argument (the mesh and the communicator do not have the same ranks);
///         those of `check_tensor` and `resolve_placements`. Then those of `save` on many ranks.
/// Cost: as `save` on many ranks, and one round of all_gather (the sizes of all entries).
/// Source: torch.distributed.checkpoint.save of a module's DTensors
template <torch_module M>
result<save_report> save_checkpoint(const M& module, const std::filesystem::path& destination, const device_mesh& mesh,
                                    std::span<const placement_rule> rules, communicator_ref comm,
                                    const module_rank_save_options& options = {}) {
  std::vector<module_entry<M>> entries = entries_of(module);
  const auto held = detail::held_to_save(detail::placed_memory_of<const_tensor_view>(entries, options.inside),
                                         {mesh, rules, options.placing}, comm,
                                         options.saving.saving().call().named("save_checkpoint"));
  if (!held) return held.error();
  return save(destination, *held, comm, options.saving);
}

struct module_rank_load_options {
  path inside{};  // as in module_load_options
  rank_load_options loading{};
  open_options opening{};
  placement_options placing{};
};

/// Loads each rank's parts of a module from a checkpoint of any format, saved by any number of ranks. Collective;
/// blocks. Data that several ranks hold is read once.
/// \param module, mesh, rules  as for `save_checkpoint`; ranks may have different ones (stages of a pipeline)
/// \errors the same on every rank. Before a byte is read: those of `open_checkpoint`; errc::shape_mismatch naming the
///         entry, the rank, the sizes that the layout of the stored tensor gives it, and its actual sizes;
///         errc::invalid_argument for a rank that is not in its mesh; those of `check_tensor` and `resolve_placements`.
///         Then those of `load` on many ranks.
/// Cost: as `load` on many ranks, and one round of all_gather with empty notes.
/// Source: torch.distributed.checkpoint.load into a module's DTensors
template <torch_module M>
result<load_report> load_checkpoint(M& module, const std::filesystem::path& checkpoint, const device_mesh& mesh,
                                    std::span<const placement_rule> rules, communicator_ref comm,
                                    const module_rank_load_options& options = {}) {
  const detail::call_scope limits(options.loading.loading().call().named("load_checkpoint"));  // also of the opening
  auto reader = open_checkpoint(checkpoint, options.opening);
  const result<void> opened = reader ? result<void>() : result<void>(reader.error());
  std::vector<module_entry<M>> entries = entries_of(module);
  auto held = detail::held_to_load(
      reader ? reader->get() : nullptr, opened, detail::placed_memory_of<tensor_view>(entries, options.inside),
      {mesh, rules, options.placing}, comm, options.loading.loading().call().named("load_checkpoint"));
  if (!held) return held.error();
  for (std::size_t i = 0; i < entries.size(); ++i)
    held->tensors[i].written = [&entries, i] { note_written(entries[i].tensor); };
  return load(**reader, *held, comm, options.loading);
}

}  // namespace shardmesh
