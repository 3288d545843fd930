// SPDX-License-Identifier: Apache-2.0
// save: writes tensors in memory to a new checkpoint, from one process. The counterpart of load.
export module shardmesh.checkpoint:save;

import shardmesh.std;
import shardmesh.core;
import shardmesh.tree;
import shardmesh.checkpoint_core;
import :targets;

export namespace shardmesh {

/// A part of a tensor in memory. `from` has the sizes of `where`, and any strides. DCP and torch_checkpointing put it
/// into the file of `rank`.
struct save_part {
  box where;
  const_tensor_view from;
  std::int32_t rank = 0;
};

/// A tensor to save. Its parts tile it and have the same dtype; their memory must outlive the call.
struct save_tensor {
  std::string key;
  path where;  // nested path for DCP, .pt and torch_checkpointing; empty: one element, the key
  extents shape;
  std::vector<save_part> parts;
};

/// Writes a new checkpoint of any `target_format`, completely or not at all.
/// \errors one problem for each tensor, naming key and box: errc::shape_mismatch (a view does not fit its box),
///         errc::unsupported (memory that no backend reaches), errc::dtype_mismatch (parts differ), errc::gap and
///         errc::overlap (parts do not tile), those of the format; with `previous`, those of
///         `dcp::previous_checkpoint`.
/// Cost: one pass over the bytes; `options.memory_bytes` bounds the memory.
/// Source: torch.distributed.checkpoint.save
result<save_report> save(const std::filesystem::path& destination, std::span<const save_tensor> tensors,
                         target_format to = target_format::dcp, const save_options& options = {});

}  // namespace shardmesh
