// SPDX-License-Identifier: Apache-2.0
// python_text: Python's str() of the values that serve as dict keys: PyTorch's flattening takes str(key) of each.
// Not here: JSON (object_json).
export module shardmesh.pickle:python_text;

import shardmesh.std;
import :value;

export namespace shardmesh::pickle {

/// What Python's str() gives: of str, int, bool, float, None, bytes, dtypes, devices, sizes, and tuples of them, of at
/// most a few thousand characters. Nothing where that needs Python: enums, instances, sets of several elements.
std::optional<std::string> python_str(const pickle::value& value);

}  // namespace shardmesh::pickle
