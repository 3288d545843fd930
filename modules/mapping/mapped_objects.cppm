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

// The number of the instance that uses each source tensor, by the tensor's key; the keys are views of the catalog's.
// For a tensor that is not used, the number is that of all instances.
using instances_by_key = std::unordered_map<std::string_view, std::size_t>;
instances_by_key index_instances(const bound_mapping& bound, const catalog& source);

// Returns a list of parameters with the names of the targets. Each name occurs once, at the place of its first source.
// Names of tensors that are not used are left out, and unknown names stay. A value that is not a list stays unchanged.
// \param names  the list as JSON
// \param key    of the list, for messages
// \errors errc::unsupported for a list that has only some of the parameters that a rule joins; errc::invalid_argument
//         for a new name that is not UTF-8
result<std::string> with_new_names(const std::string& names, std::string_view key, const bound_mapping& bound,
                                   const bound_list& list, const instances_by_key& instances);

// Reads such a list of a checkpoint. \errors those of `with_new_names` and `read_object`
result<object_value> renamed_list(checkpoint_reader& inner, const bound_mapping& bound, const bound_list& list,
                                  const instances_by_key& instances);

}  // namespace shardmesh
