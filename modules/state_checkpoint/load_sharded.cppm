// SPDX-License-Identifier: Apache-2.0
// load_sharded: loads one rank's part of a checkpoint, laid out over a mesh by placement rules. The rules are in
// checkpoint's placement_rules; ranks that share reads are in collective_checkpoint.
module;
#include <shardmesh/refuse.hpp>

export module shardmesh.state_checkpoint:load_sharded;

import shardmesh.std;
import shardmesh.fsdp;
import shardmesh.checkpoint;
import :outline;

export namespace shardmesh {

/// The options of `load_sharded`: the placement of tensors, and the choice of entries.
struct load_sharded_options {
  // As in placement_options.
  std::vector<placement> default_placements{};
  bool allow_unused = false;  // accept rules of placements that match nothing
  bool optimizer_follows = true;
  // As in read_state_options.
  selection_options selection{};
  bool objects = true;
  int threads = 0;
  bool check = false;
  time_limit within{};
  std::stop_token cancel{};
  std::function<void(std::int64_t bytes)> progress{};
  std::function<void(const read_state_report&)> report{};
  read_options reading{};
  open_options opening{};

  /// Returns the options that place tensors.
  placement_options placing() const {
    return {
        .default_placements = default_placements, .allow_unused = allow_unused, .optimizer_follows = optimizer_follows};
  }
  /// Returns the options that choose and read entries.
  read_state_options reading_state() const {
    return {.selection = selection,
            .objects = objects,
            .threads = threads,
            .check = check,
            .within = within,
            .cancel = cancel,
            .progress = progress,
            .report = report,
            .reading = reading,
            .opening = opening};
  }
};

/// Loads this rank's part of a checkpoint of any layout. Every tensor becomes a `dtensor<T>` with the placements that
/// `rules` give it, as in `reshard`. Every object is read as by `read_state_dict`, at the same path. No communication:
/// a rank may call it even if others do not. All arguments except `rank` are the same on every rank. It reads only this
/// rank's part of each tensor.
/// \param rank  in the numbering of the mesh
/// \errors errc::invalid_argument: a rank outside the mesh, rules that do not fit (the first error of
///         `resolve_placements`; a pattern without a matching key names a similar one); errc::unsupported for a Partial
///         placement; errc::unaligned if elements smaller than a byte are cut; those of `read_state_dict`. Each names
///         the key.
/// Cost: as `load` (for tensors cut into rows, it reads only the bytes of this rank), and O(keys · rules).
/// Source: torch.distributed.checkpoint.load into a state dict of DTensors, which the caller makes first
template <allocatable_tensor T>
result<state_dict<T>> load_sharded(checkpoint_reader& checkpoint, const device_mesh& mesh,
                                   std::span<const placement_rule> rules, std::int32_t rank,
                                   const load_sharded_options& options = {}) {
  const read_state_options reading = options.reading_state();
  auto opened = detail::opened_state::open(checkpoint);
  if (!opened) return std::move(opened).error();
  auto outline = detail::outline_of(opened->reader(), reading);
  if (!outline) return std::move(outline).error();
  if (auto placed = detail::place(*outline, mesh, rules, rank, options.placing()); !placed)
    return std::move(placed).error().with_file(checkpoint.path().string());
  auto tensors = detail::read_tensors<T>(opened->reader(), *outline, rank, reading);
  if (!tensors) return std::move(tensors).error();
  std::vector<layout> layouts;
  for (detail::outlined_tensor& one : outline->tensors) layouts.push_back(*std::move(one.placed));
  return detail::assemble<T>(*std::move(outline), [&](std::size_t i) -> result<state_value<T>> {
    auto made = dtensor<T>::make(std::move(layouts[i]), rank, std::optional<T>(std::move((*tensors)[i])));
    if (!made) return std::move(made).error();
    return state_value<T>(*std::move(made));
  });
}

/// Does the same for a path. \errors also those of `open_checkpoint`
template <allocatable_tensor T>
result<state_dict<T>> load_sharded(const std::filesystem::path& checkpoint, const device_mesh& mesh,
                                   std::span<const placement_rule> rules, std::int32_t rank,
                                   const load_sharded_options& options = {}) {
  const detail::call_scope limits({.within = options.within, .cancel = options.cancel, .name = "load"});
  auto reader = open_checkpoint(checkpoint, options.opening);
  if (!reader) return std::move(reader).error();
  return load_sharded<T>(**reader, mesh, rules, rank, options);
}

/// Refuses tensor types that cannot be allocated.
template <class T, class Checkpoint>
  requires(!allocatable_tensor<T>)
void load_sharded(Checkpoint&& checkpoint, const device_mesh& mesh, std::span<const placement_rule> rules,
                  std::int32_t rank, const load_sharded_options& options = {}) =
    SHARDMESH_REFUSE(
        "the tensors of a checkpoint are new ones: give adapter<T> a view and allocate(dtype, sizes, device)");

/// Loads this rank's part of a dtensor from a stored tensor of any layout; nothing else is read. A rank outside the
/// mesh reads nothing.
/// \errors those of `load`; errc::shape_mismatch if the dtensor's global shape is not the stored one, naming both and
///         the rank; errc::unsupported for a Partial dtensor
template <local_tensor T>
result<load_report> load_into(checkpoint_reader& reader, std::string_view key, dtensor<T>& to,
                              const load_options& options = {}) {
  const tensor_view local = to.has_local() ? adapter<T>::view(to.local()) : tensor_view{};
  auto wanted = detail::requests_of(reader, key, to.layout(), to.rank(), to.has_local() ? &local : nullptr);
  if (!wanted) return std::move(wanted).error();
  auto loaded = load(reader, *wanted, options);
  if (loaded && to.has_local()) note_written(to.local());
  return loaded;
}

}  // namespace shardmesh
