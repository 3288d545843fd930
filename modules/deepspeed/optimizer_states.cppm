// SPDX-License-Identifier: Apache-2.0
// Not exported: reads a rank's optimizer file, which holds the rank's parts of the flat buffers. The parts are joined
// in partition.
// Source: the state_dict() of DeepSpeedZeroOptimizer, DeepSpeedZeroOptimizer_Stage3, BF16_Optimizer
module shardmesh.deepspeed:optimizer_states;

import shardmesh.std;
import shardmesh.core;
import :saved_values;

namespace shardmesh::deepspeed {

// A value of a whole parameter group, such as `step`.
struct group_value {
  std::size_t group = 0;
  std::string name;
  bool is_tensor = false;
  std::size_t index = 0;  // in the file's catalog
};

struct optimizer_states {
  saved_file file;
  std::int64_t stage = 0;
  std::int64_t partitions = 0;                                       // number of ranks that share the parameters
  std::vector<std::size_t> weights;                                  // tensors: one flat buffer per group
  std::map<std::string, std::map<std::size_t, std::size_t>> states;  // by name and group: flat buffers of the states
  std::vector<group_value> group_values;
  std::vector<std::vector<std::int64_t>> paddings;  // padding elements after each parameter of each group; empty: none
  std::map<std::string, std::string> settings;      // param_groups and versions, equal on all ranks, as text
  // Values outside the flat buffers, each with the index of the path step at which its name begins.
  std::vector<std::pair<std::size_t, group_value>> others;
};

// Reads an optimizer file. errc::bad_format for a file that is not ZeRO's; errc::unsupported for an unknown stage.
result<optimizer_states> read_optimizer_states(const saved_file& file);

}  // namespace shardmesh::deepspeed
