// SPDX-License-Identifier: Apache-2.0
// Not exported: plans the folder to write: the item, the rank, and the file of every entry. Writing the bytes is in
// save.
module shardmesh.torch_checkpointing:folder_plan;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;
import shardmesh.tree;
import shardmesh.torch_file;
import :chunk_sharding;
import :metadata;
import :save;

namespace shardmesh::torch_checkpointing {

// A part of a tensor in a file.
struct planned_part {
  std::size_t tensor = 0;  // index into the given tensors
  box where;
  std::size_t entry = 0;  // index in the file's `entries`
};

struct planned_file {
  std::string name;
  payload how = payload::torch;
  std::vector<torch_file::state_entry> entries;
  std::vector<planned_part> parts;
};

struct folder_plan {
  metadata described;
  std::vector<planned_file> files;  // item by item, by rank within each
  std::vector<std::string> notes;
};

// \errors errc::unsupported, errc::duplicate_key, naming the key
result<folder_plan> plan_folder(std::span<const output_tensor> tensors, std::span<const output_object> objects,
                                const folder_options& format);

}  // namespace shardmesh::torch_checkpointing
