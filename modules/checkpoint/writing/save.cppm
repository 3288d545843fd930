// SPDX-License-Identifier: Apache-2.0
// save: tensors in memory into a new checkpoint, from one process. The way back of load.
export module shardmesh.checkpoint:save;

import shardmesh.std;
import shardmesh.core;
import shardmesh.tree;
import shardmesh.catalog;
import :targets;

export namespace shardmesh {

/// A part of a tensor in memory: `from` has where's sizes, any strides. In DCP and torch_checkpointing it lies
/// in `rank`'s file.
struct save_part {
  box where;
  const_tensor_view from;
  std::int32_t rank = 0;
};

/// A tensor to save: its parts tile it. Parts of equal dtype; memory outlives the call.
struct save_tensor {
  std::string key;
  path where;  // nested path for DCP, .pt and torch_checkpointing; empty: one element, the key
  extents shape;
  std::vector<save_part> parts;
};

/// Writes a new checkpoint in DCP, safetensors, a Hugging Face folder, a .pt file or a folder of torch_checkpointing,
/// whole or not at all.
/// \errors in the report, each naming key and box: errc::shape_mismatch (a view does not fit its box),
///         errc::unsupported (memory that no backend reaches), errc::dtype_mismatch (parts differ), errc::gap and
///         errc::overlap (parts do not tile), those of the format.
/// Cost: one pass over the bytes; memory bounded by `options.memory_bytes`.
/// Source: torch.distributed.checkpoint.save
save_report save(const std::filesystem::path& destination, std::span<const save_tensor> tensors,
                 target_format to = target_format::dcp, const save_options& options = {});

}  // namespace shardmesh
