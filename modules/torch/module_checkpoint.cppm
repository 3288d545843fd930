// SPDX-License-Identifier: Apache-2.0
// Loads checkpoints into the memory of a torch::nn::Module, and saves from it. For state dicts of several modules and
// optimizers, see `state_of` and the rooms state_checkpoint and collective_checkpoint. Ranks that save and load
// together are in module_ranks.
export module shardmesh.torch:module_checkpoint;

import shardmesh.std;
import shardmesh.core;
import shardmesh.tree;
import shardmesh.layout;
import shardmesh.checkpoint;
import :module_state;

namespace shardmesh::detail {

// An entry's key in the checkpoint, and its memory.
struct keyed_memory {
  std::string key;
  tensor_view to;
};

// Makes requests for each whole entry, or for this rank's part of it, as the rules lay out the stored tensors.
result<std::vector<load_request>> requests_of(std::span<const keyed_memory> entries);
result<std::vector<load_request>> requests_of(const checkpoint_reader& reader, std::span<const keyed_memory> entries,
                                              const device_mesh& mesh, std::span<const placement_rule> rules,
                                              std::int32_t rank, const placement_options& placing);

path path_inside(const path& inside, std::string_view name);

// Returns a rank's boxes of a tensor (none, one, or several), with their views in `memory`. errc::shape_mismatch if the
// sizes of the memory differ from those that the layout gives this rank; errc::unaligned if elements smaller than a
// byte are cut.
template <tensor_view_type View>
result<std::vector<basic_local_part<View>>> parts_of(const View& memory, const layout& laid, std::int32_t rank) {
  const extents wanted = laid.local_shape(rank);
  if (memory.sizes != wanted)
    return fail(errc::shape_mismatch,
                "the module's tensor does not have the shape of this rank's part of " + to_string(laid))
        .with_rank(rank)
        .with_values(to_string(wanted), to_string(memory.sizes));
  std::vector<basic_local_part<View>> parts;
  for (const placed_box& part : laid.boxes(rank)) {
    const box inside{part.local_offsets, part.where.sizes};
    const bool is_all = inside == box::whole(memory.sizes);
    if (!is_all && bits(memory.type) % 8 != 0)
      return fail(errc::unaligned, "a tensor of " + std::string(name(memory.type)) + " cannot be cut")
          .with_rank(rank)
          .with_box(part.where);
    parts.push_back({part.where, is_all ? memory : subview(memory, inside)});
  }
  return parts;
}

template <torch_module M>
result<std::vector<keyed_memory>> memory_of(std::vector<module_entry<M>>& entries, const path& inside) {
  std::vector<keyed_memory> memory;
  for (module_entry<M>& one : entries) {
    if (auto plain = check_tensor(one.tensor); !plain) return std::move(plain).error().with_key(one.name);
    memory.push_back({dotted(path_inside(inside, one.name)), view_of(one.tensor)});
  }
  return memory;
}

template <torch_module M>
result<load_report> load_entries(std::vector<module_entry<M>>& entries, checkpoint_reader& reader,
                                 const result<std::vector<load_request>>& requests, const load_options& options) {
  if (!requests) return requests.error();
  auto loaded = load(reader, *requests, options);
  if (loaded)
    for (module_entry<M>& one : entries) note_written(one.tensor);
  return loaded;
}

}  // namespace shardmesh::detail

export namespace shardmesh {

/// The options of `load_checkpoint` into a torch::nn::Module. By default its entries are at the top of the checkpoint.
struct module_load_options {
  /// The place of the module's entries in the checkpoint: {"model"} if it was saved as {"model": state_dict}.
  path inside{};
  load_options loading{};
  open_options opening{};
};

/// Loads the module's parameters and buffers from a checkpoint of any format: DCP (PyTorch's or ours, from any number
/// of ranks), `torch.save` files, safetensors. Other entries of the checkpoint are not read. Ranges are read straight
/// into the module's memory if that is contiguous host memory of the stored dtype.
/// \errors those of `open_checkpoint`; before a byte is read those of `check_tensor` and of `load`: errc::missing_key,
///         errc::shape_mismatch, errc::dtype_mismatch, errc::narrowing, each naming the key
/// Cost: the bytes of the module's entries.
/// Source: torch.distributed.checkpoint.load({...: module.state_dict()})
template <torch_module M>
result<load_report> load_checkpoint(M& module, const std::filesystem::path& checkpoint,
                                    const module_load_options& options = {}) {
  const detail::call_scope limits(options.loading.call().named("load"));  // also of the opening
  auto reader = open_checkpoint(checkpoint, options.opening);
  if (!reader) return std::move(reader).error();
  std::vector<module_entry<M>> entries = entries_of(module);
  auto memory = detail::memory_of<M>(entries, options.inside);
  if (!memory) return std::move(memory).error();
  return detail::load_entries<M>(entries, **reader, detail::requests_of(*memory), options.loading);
}

/// Loads this rank's part of each entry, for a module whose tensors are the local parts on a mesh. `rules` lay out the
/// stored tensors (`parse_placement_rules({".*weight=S(0)"})`); entries without a rule are whole on every rank. No
/// communication; only this rank's part is read.
/// \param rank  in the numbering of the mesh
/// \errors as above; those of `resolve_placements`; errc::shape_mismatch if the sizes of a local tensor differ from
///         those that the layout gives this rank, naming the rank and both
template <torch_module M>
result<load_report> load_checkpoint(M& module, const std::filesystem::path& checkpoint, const device_mesh& mesh,
                                    std::span<const placement_rule> rules, std::int32_t rank,
                                    const module_load_options& options = {}, const placement_options& placing = {}) {
  const detail::call_scope limits(options.loading.call().named("load"));  // also of the opening
  auto reader = open_checkpoint(checkpoint, options.opening);
  if (!reader) return std::move(reader).error();
  std::vector<module_entry<M>> entries = entries_of(module);
  auto memory = detail::memory_of<M>(entries, options.inside);
  if (!memory) return std::move(memory).error();
  return detail::load_entries<M>(entries, **reader, detail::requests_of(**reader, *memory, mesh, rules, rank, placing),
                                 options.loading);
}

/// The options of `save_checkpoint` of a torch::nn::Module. By default it writes a DCP folder with the entries at the
/// top.
struct module_save_options {
  path inside{};  // as in module_load_options
  target_format format = target_format::dcp;
  save_options saving{};
};

/// Saves the module's entries from its memory as a new checkpoint, whole or not at all.
/// \errors those of `check_tensor`, one problem for each entry; those of `save`
/// Source: torch.distributed.checkpoint.save({...: module.state_dict()})
template <torch_module M>
result<save_report> save_checkpoint(const M& module, const std::filesystem::path& destination,
                                    const module_save_options& options = {}) {
  const std::vector<module_entry<M>> entries = entries_of(module);
  std::vector<save_tensor> tensors;
  std::vector<error> problems;
  for (const module_entry<M>& one : entries) {
    if (auto plain = check_tensor(one.tensor); !plain) {
      problems.push_back(std::move(plain).error().with_key(one.name));
      continue;
    }
    path where = detail::path_inside(options.inside, one.name);
    const const_tensor_view from = view_of(one.tensor);
    std::string key = dotted(where);
    tensors.push_back({std::move(key), std::move(where), from.sizes, {{box::whole(from.sizes), from}}});
  }
  if (!problems.empty()) return fail_all(std::move(problems));
  return save(destination, tensors, options.format, options.saving);
}

}  // namespace shardmesh
