// SPDX-License-Identifier: Apache-2.0
// Not exported: the objects of an optimizer in a mapped checkpoint: values of parameters that are joined, and lists of
// parameter names.
module shardmesh.mapping:mapped_objects;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;
import :binding;

namespace shardmesh {

// Checks that the objects of parameters that a rule joins are equal.
// \errors errc::disagreement, naming both objects and their values; those of `read_object`
result<void> check_equal_objects(checkpoint_reader& inner, const bound_object& object);

// Reads a list of parameters with the names of the targets, each once: where the first of its sources was. Names of
// tensors that are not used are left out, and unknown names stay.
// \param instances  by the keys of their source tensors; the number of instances for a tensor that is not used
// \errors errc::unsupported for a list that has only some of the parameters that a rule joins; those of `read_object`
result<object_value> renamed_list(checkpoint_reader& inner, const bound_mapping& bound, const bound_list& list,
                                  const std::unordered_map<std::string_view, std::size_t>& instances);

}  // namespace shardmesh
