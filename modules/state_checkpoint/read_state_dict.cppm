// SPDX-License-Identifier: Apache-2.0
// read_state_dict: reads a whole checkpoint of any format as a state dict, in one process.
module;
#include <shardmesh/refuse.hpp>

export module shardmesh.state_checkpoint:read_state_dict;

import shardmesh.std;
import shardmesh.fsdp;
import shardmesh.checkpoint;
import :outline;

export namespace shardmesh {

/// Reads the state dict in a checkpoint: every tensor whole and in new memory, and every object, each at its entry's
/// path. A name in a path is a key of a mapping, and an index is a position in a sequence, as in DCP's planner data and
/// .pt files. A key of a format with flat names (safetensors, Hugging Face, GGUF, NumPy) is one name with its dots:
/// "a.b.0" is a key of the top mapping, unless our `objects.json` has its path. `options.report` gets the casts, and
/// notes on optimizer state and rules (see `read_state_report`). Containers of plain values (dicts, lists, tuples) are
/// read as containers. Other Python objects become `opaque_object`, which `save` writes unchanged. Objects that hold
/// tensors are split as in `convert`.
/// \errors errc::invalid_argument (a rule of the selection that matches nothing, with a similar key; entries that do
///         not fit in one tree); errc::unsupported for tensors of an unknown representation, and for objects of which
///         the checkpoint keeps only a type name; the first of the checkpoint's own problems; exceptions of `allocate`;
///         those of `load`. Each names file and key.
/// Cost: reads the bytes of the tensors and objects once; otherwise O(entries · depth).
/// Source: torch.load; torch.distributed.checkpoint.state_dict_loader._load_state_dict_from_keys
template <allocatable_tensor T>
result<state_dict<T>> read_state_dict(checkpoint_reader& checkpoint, const read_state_options& options = {}) {
  auto opened = detail::opened_state::open(checkpoint);
  if (!opened) return std::move(opened).error();
  auto outline = detail::outline_of(opened->reader(), options);
  if (!outline) return std::move(outline).error();
  auto tensors = detail::read_tensors<T>(opened->reader(), *outline, 0, options);
  if (!tensors) return std::move(tensors).error();
  return detail::assemble<T>(*std::move(outline), [&](std::size_t i) -> result<state_value<T>> {
    return state_value<T>(std::move((*tensors)[i]));
  });
}

/// Does the same for a path. \errors also those of `open_checkpoint`
template <allocatable_tensor T>
result<state_dict<T>> read_state_dict(const std::filesystem::path& checkpoint, const read_state_options& options = {}) {
  const detail::call_scope limits(options.loading().call().named("load"));  // the limits include the opening
  auto reader = open_checkpoint(checkpoint, options.opening);
  if (!reader) return std::move(reader).error();
  return read_state_dict<T>(**reader, options);
}

/// Refuses tensor types that cannot be allocated.
template <class T, class Checkpoint>
  requires(!allocatable_tensor<T>)
void read_state_dict(Checkpoint&& checkpoint, const read_state_options& options = {}) = SHARDMESH_REFUSE(
    "the tensors of a checkpoint are new ones: give adapter<T> a view and allocate(dtype, sizes, device)");

}  // namespace shardmesh
