// SPDX-License-Identifier: Apache-2.0
// Not exported: plans a GGUF file: the type and place of each tensor, and every byte before the first tensor. Writing
// the tensors is in save.
module shardmesh.gguf:file_plan;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;
import :reader;
import :save;
import :tensor_type;

namespace shardmesh::gguf {

// One tensor of the file.
struct planned_tensor {
  const type_traits* type = nullptr;
  std::int64_t begin = 0, length = 0;     // bytes of the file
  const stored_blocks* copied = nullptr;  // set for blocks that are copied unchanged
  bool is_quantized() const { return !type->is_plain() && copied == nullptr; }
};

struct file_plan {
  std::vector<planned_tensor> tensors;  // one per given tensor
  std::string description;              // all bytes before the first tensor
  std::int64_t size_bytes = 0;
  std::vector<std::string> notes;
};

// Plans the file. The options must outlive the plan.
// \errors those of `save` that come before a file exists
result<file_plan> plan_file(std::span<const output_tensor> tensors, std::span<const output_object> objects,
                            const file_options& format);

// The metadata of a file: its values one after the other, and their number.
struct planned_metadata {
  std::string values;
  std::uint64_t count = 0;
  std::int64_t alignment = 32;
  std::vector<std::string> notes;
};

// Plans the metadata. `has_blocks`: the file has tensors of quantized blocks.
result<planned_metadata> plan_metadata(std::span<const output_object> objects, const catalog* carried, bool has_blocks);

}  // namespace shardmesh::gguf
