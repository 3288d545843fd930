// SPDX-License-Identifier: Apache-2.0
// Not exported: what a rank's optimizer file holds: its parts of the flat buffers. Not here: putting them together.
// Source: the state_dict() of DeepSpeedZeroOptimizer, DeepSpeedZeroOptimizer_Stage3, BF16_Optimizer
module shardmesh.deepspeed:optimizer_states;

import shardmesh.std;
import shardmesh.core;
import :saved_values;

namespace shardmesh::deepspeed {

// A value that a group of parameters has as a whole, `step`.
struct group_value {
  std::size_t group = 0;
  std::string name;
  bool is_tensor = false;
  std::size_t index = 0;  // in the file's catalog
};

struct optimizer_states {
  saved_file file;
  std::int64_t stage = 0;
  std::int64_t partitions = 0;                                       // ranks that share the parameters
  std::vector<std::size_t> weights;                                  // tensors: a flat buffer of each group
  std::map<std::string, std::map<std::size_t, std::size_t>> states;  // by name and group: flat buffers beside them
  std::vector<group_value> group_values;
  std::vector<std::vector<std::int64_t>> paddings;  // elements behind each parameter of each group; empty: none
  std::map<std::string, std::string> settings;      // param_groups and versions, which all ranks agree on, as text
  // What is no part of the flat buffers, with the step of its path that its name begins with.
  std::vector<std::pair<std::size_t, group_value>> others;
};

// errc::bad_format for what is no optimizer file of ZeRO; errc::unsupported for a stage that we do not know.
result<optimizer_states> read_optimizer_states(const saved_file& file);

}  // namespace shardmesh::deepspeed
