// SPDX-License-Identifier: Apache-2.0
// load_sharded: one rank's part of a checkpoint, laid out over a mesh by placement rules. Not here: what the rules mean
// (checkpoint's placement_rules), ranks that share what they read (collective_checkpoint).
module;
#include <shardmesh/refuse.hpp>

export module shardmesh.state_checkpoint:load_sharded;

import shardmesh.std;
import shardmesh.fsdp;
import shardmesh.checkpoint;
import :outline;

export namespace shardmesh {

/// How `load_sharded` places tensors, and which entries it reads.
struct load_sharded_options {
  placement_options placing{};  // of keys without a rule, and of optimizer state
  read_state_options reading{};
};

/// This rank's part of a checkpoint that was saved in any layout: every tensor becomes a `dtensor<T>` with the
/// placements that `rules` give it, as in `reshard`, and every object is read as by `read_state_dict`, at the same
/// paths. No communication: ranks call it or not, with the same arguments but for `rank`, and of each tensor only what
/// the rank holds is read.
/// \param rank  in the numbering of the mesh
/// \errors errc::invalid_argument: a rank outside the mesh, rules that do not fit (`resolve_placements`: the first of
///         its errors; a pattern that matches no key names a near one); errc::unsupported for a Partial placement;
///         errc::unaligned when elements smaller than a byte are cut; those of `read_state_dict`. Each names the key.
/// Cost: as `load`: of rows the bytes of this rank; O(keys · rules).
/// Source: torch.distributed.checkpoint.load into a state dict of DTensors, which the caller makes first
template <allocatable_tensor T>
result<state_dict<T>> load_sharded(checkpoint_reader& checkpoint, const device_mesh& mesh,
                                   std::span<const placement_rule> rules, std::int32_t rank,
                                   const load_sharded_options& options = {}) {
  auto opened = detail::opened_state::open(checkpoint);
  if (!opened) return std::move(opened).error();
  auto outline = detail::outline_of(opened->reader(), options.reading);
  if (!outline) return std::move(outline).error();
  if (auto placed = detail::place(*outline, mesh, rules, rank, options.placing); !placed)
    return std::move(placed).error().with_file(checkpoint.path().string());
  auto tensors = detail::read_tensors<T>(opened->reader(), *outline, rank, options.reading);
  if (!tensors) return std::move(tensors).error();
  std::vector<layout> layouts;
  for (detail::outlined_tensor& one : outline->tensors) layouts.push_back(*std::move(one.placed));
  return detail::assemble<T>(*std::move(outline), [&](std::size_t i) -> result<state_value<T>> {
    auto made = dtensor<T>::make(std::move(layouts[i]), rank, std::optional<T>(std::move((*tensors)[i])));
    if (!made) return std::move(made).error();
    return state_value<T>(*std::move(made));
  });
}

/// The same of a path. \errors those of `open_checkpoint`, too
template <allocatable_tensor T>
result<state_dict<T>> load_sharded(const std::filesystem::path& checkpoint, const device_mesh& mesh,
                                   std::span<const placement_rule> rules, std::int32_t rank,
                                   const load_sharded_options& options = {}) {
  auto reader = open_checkpoint(checkpoint, options.reading.opening);
  if (!reader) return std::move(reader).error();
  return load_sharded<T>(**reader, mesh, rules, rank, options);
}

/// Into tensors that cannot be made.
template <class T, class Checkpoint>
  requires(!allocatable_tensor<T>)
void load_sharded(Checkpoint&& checkpoint, const device_mesh& mesh, std::span<const placement_rule> rules,
                  std::int32_t rank, const load_sharded_options& options = {}) =
    SHARDMESH_REFUSE(
        "the tensors of a checkpoint are new ones: give adapter<T> a view and allocate(dtype, sizes, device)");

/// What this rank holds of a dtensor, out of a stored tensor of any layout; only that is read. A rank outside of the
/// mesh reads nothing.
/// \errors those of `load`; errc::shape_mismatch when the dtensor's global shape is not the stored one, naming both and
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
