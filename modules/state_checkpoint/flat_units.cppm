// SPDX-License-Identifier: Apache-2.0
// flat_units: the contents of the flat parameters of an FSDP1 local state dict (names, shapes, order), as the user
// describes them. carve shows the checkpoint with the parameters that they describe.
export module shardmesh.state_checkpoint:flat_units;

import shardmesh.std;
import shardmesh.fsdp;

export namespace shardmesh {

/// One flat tensor of a checkpoint and the parameters in it.
struct flat_unit {
  std::string key;                         // of the stored tensor: "model.mlp._flat_param"
  std::string prefix;                      // of the parameters' names: "model.mlp"
  bool has_default_prefix = true;          // `prefix` is the part of `key` before "_flat_param"
  std::vector<parameter_info> parameters;  // types are the stored tensor's
  std::vector<shared_parameter_info> shared;
  flat_parameter_options layout;
};

/// Parses a file with a flat spec; only key, and parameters with name and shape, are required:
///   {"units":[{"key":..,"prefix":..,"alignment":0,"ranks":1,"parameters":[{"name":..,"shape":[..],"strides":[..]}],
///   "shared":[{"name":..,"of":..}]}]}
/// \errors errc::bad_format naming line and column if the text is not JSON, else the member; errc::duplicate_key for
///         two units of one flat parameter; errc::io; each names the file
result<std::vector<flat_unit>> read_flat_units(const std::filesystem::path& file);

}  // namespace shardmesh
