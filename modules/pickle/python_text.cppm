// SPDX-License-Identifier: Apache-2.0
// Computes Python's str() of values that serve as dict keys, because PyTorch's flattening takes str(key) of each key.
// JSON is in object_json.
export module shardmesh.pickle:python_text;

import shardmesh.std;
import :value;

export namespace shardmesh::pickle {

/// Returns Python's str() of a str, int, bool, float, None, bytes, dtype, device, size, or tuple of them, up to a few
/// thousand characters. Returns nothing for values that need Python: enums, instances, and sets of several elements.
std::optional<std::string> python_str(const pickle::value& value);

}  // namespace shardmesh::pickle
