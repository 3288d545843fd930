// SPDX-License-Identifier: Apache-2.0
// What lies in the flat parameters of an FSDP1 local state dict, as the user says it: names, shapes, order. Not here:
// reading the checkpoint by it (carved_reader).
#pragma once
#include <string>
#include <vector>

import shardmesh;

namespace tool {

/// One flat tensor of the checkpoint and the parameters in it.
struct flat_spec_unit {
  std::string key;     // of the stored tensor: "model.mlp._flat_param"
  std::string prefix;  // in front of the parameters' names: "model.mlp"
  bool has_default_prefix = true;
  std::vector<shardmesh::parameter_info> parameters;  // types are the stored tensor's
  std::vector<shardmesh::shared_parameter_info> shared;
  shardmesh::flat_parameter_options layout;
};

/// {"units":[{"key":..,"prefix":..,"alignment":0,"ranks":1,"parameters":[{"name":..,"shape":[..],"strides":[..]}],
/// "shared":[{"name":..,"of":..}]}]}; only key and parameters with name and shape are needed.
/// \errors errc::io; errc::bad_format naming the file and, for what is no JSON, line and column, else the member
shardmesh::result<std::vector<flat_spec_unit>> read_flat_spec(const std::string& file);

}  // namespace tool
