// SPDX-License-Identifier: Apache-2.0
// Writes the settings of a wrapper as plain data that JSON can hold completely, and rebuilds them. The classes are in
// `wrapper_table`. Not exported.
module shardmesh.torch_file:wrapper_setting;

import shardmesh.std;
import shardmesh.core;
import shardmesh.pickle;

namespace shardmesh::torch_file {

// Writes a setting as plain data. None, bool, int, float, str, torch dtypes and sizes, lists, and tuples stay
// unchanged. An enum member is {"enum": CLASS, "value": V} or {"enum": CLASS, "name": NAME}, depending on its pickle.
// An object is {"instance": CLASS, "arguments": [..], "state": {..}}. A dtype that shardmesh lacks is {"dtype": NAME}.
// Anything else is {"unknown": CLASS}, which cannot be rebuilt.
void spell_setting(pickle::writer& out, const pickle::value& value);

// Writes the setting that such data describes. Nothing in the data is trusted: depth and classes are bounded.
// \errors errc::unsupported for an unknown class; errc::bad_format for invalid data
result<void> write_setting(pickle::writer& out, const pickle::value& spelled);

// Returns whether Python code could use this as an attribute's name. Python's own names ("__class__") do not count.
bool is_attribute_name(std::string_view name);

}  // namespace shardmesh::torch_file
