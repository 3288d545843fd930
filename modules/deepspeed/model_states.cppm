// SPDX-License-Identifier: Apache-2.0
// Not exported: what a rank's model file says of the model. Not here: the elements of trained parameters, which the
// optimizers' files have.
// Source: DeepSpeedEngine._save_checkpoint, deepspeed.utils.zero_to_fp32.parse_model_states
module shardmesh.deepspeed:model_states;

import shardmesh.std;
import shardmesh.core;
import :saved_values;

namespace shardmesh::deepspeed {

struct named_shape {
  std::string name;
  extents shape;
  std::int64_t numel = 0;
};

struct model_states {
  saved_file file;
  std::map<std::string, std::size_t> module;     // tensors of the model's state dict (ZeRO 3: empty stand-ins)
  std::vector<std::string> module_order;         // their names as they are saved
  std::vector<std::string> buffers;              // names of those that are no parameters
  bool has_shapes = false;                       // of partitioned parameters: ZeRO 1 to 3
  std::vector<std::vector<named_shape>> groups;  // of parameters, in the order of the flat buffers
  std::vector<named_shape> frozen;
  std::map<std::string, std::size_t> frozen_fragments;      // tensors: whole, or a rank's part of them
  std::vector<std::pair<std::string, std::string>> shared;  // a name and the one that has its elements
  std::map<std::string, std::string> counters;              // what all ranks of one save agree on, as text
};

struct model_reading {
  bool has_shapes = true;         // shapes and names are read; all ranks know them alike
  bool may_be_elsewhere = false;  // the module may lie in other files, as that of a pipeline
};

// errc::unsupported where the module lies in other files and may not, or experts' parts in a form of their own;
// errc::bad_format for values of another kind.
result<model_states> read_model_states(const saved_file& file, const model_reading& how);

// What of the file is no part of the model or of its partition: how it is called in the checkpoint. Nothing for what
// is.
std::optional<std::string> name_beside_model(const shardmesh::path& where);

}  // namespace shardmesh::deepspeed
