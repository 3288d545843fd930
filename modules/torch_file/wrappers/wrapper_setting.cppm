// SPDX-License-Identifier: Apache-2.0
// Not exported: the settings beside a wrapper's tensors, in a spelling of plain data that JSON holds whole, and back.
// Not here: which classes there are (wrapper_table).
module shardmesh.torch_file:wrapper_setting;

import shardmesh.std;
import shardmesh.core;
import shardmesh.pickle;

namespace shardmesh::torch_file {

// Writes the spelling of a setting: None, bool, int, float, str, torch dtypes and sizes, lists and tuples stay as they
// are; a member of an enum is {"enum": CLASS, "value": V} or {"enum": CLASS, "name": NAME}, as it was pickled; an
// object
// {"instance": CLASS, "arguments": [..], "state": {..}}; a dtype that we have no elements of
// {"dtype": NAME}; anything else {"unknown": CLASS}, which has no way back.
void spell_setting(pickle::writer& out, const pickle::value& value);

// Writes the setting that a spelling stands for. errc::unsupported where the class is none of those that we know;
// errc::bad_format for what is no spelling. Nothing of it is trusted: depth and classes are bounded.
result<void> write_setting(pickle::writer& out, const pickle::value& spelled);

// A name that Python code could write for an attribute, and that is none of Python's own ("__class__").
bool is_attribute_name(std::string_view name);

}  // namespace shardmesh::torch_file
