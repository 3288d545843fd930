// SPDX-License-Identifier: Apache-2.0
// Not exported: reads a rank's model file, which describes the model. The elements of trained parameters are in the
// optimizers' files.
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
  std::map<std::string, std::size_t> module;     // tensors of the model's state dict (ZeRO 3: empty placeholders)
  std::vector<std::string> module_order;         // their names in saved order
  std::vector<std::string> buffers;              // names of the tensors that are not parameters
  bool has_shapes = false;                       // shapes of partitioned parameters: ZeRO 1 to 3
  std::vector<std::vector<named_shape>> groups;  // parameters in the order of the flat buffers
  std::vector<named_shape> frozen;
  std::map<std::string, std::size_t> frozen_fragments;      // tensors: whole, or a rank's part
  std::vector<std::pair<std::string, std::string>> shared;  // a name, and the name that owns its elements
  std::map<std::string, std::string> counters;              // values that all ranks of one save share, as text
};

struct model_reading {
  bool has_shapes = true;         // read shapes and names, which are equal on all ranks
  bool may_be_elsewhere = false;  // the module may be in other files, as with a pipeline
};

// Reads a model file. errc::unsupported when the module is in other files although `how` does not allow it, or when
// experts' parts have a form of their own; errc::bad_format for values of the wrong kind.
result<model_states> read_model_states(const saved_file& file, const model_reading& how);

// Returns the checkpoint's name for a value of the file that is not part of the model or its partition; nothing for
// other values.
std::optional<std::string> name_beside_model(const shardmesh::path& where);

}  // namespace shardmesh::deepspeed
