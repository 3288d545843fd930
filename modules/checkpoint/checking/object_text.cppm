// SPDX-License-Identifier: Apache-2.0
// object_text: an object's value for people, as Python would print it. Not here: its JSON (object_json).
export module shardmesh.checkpoint:object_text;

import shardmesh.std;
import shardmesh.catalog;

export namespace shardmesh {

/// The value of an `object_value` (JSON with the tags of docs/formats.md) on one line, safe for a terminal: 0.001,
/// (1, 2), {'lr': 0.1, 'dtype': torch.float32}. Beyond about `most_bytes` it is cut, with "..." in place of the rest.
/// Cost: O(the JSON up to there). No recursion.
std::string object_text(std::string_view json, std::size_t most_bytes = 60);

/// A number as people write it: the shortest digits that read back as the same double, with ".0" where it is whole.
std::string float_text(double value);

/// An object as JSON, as objects.json and the C interface have it: {"kind","type","value"}. An object without a value
/// is null there.
std::string object_document(const object_value& value);

}  // namespace shardmesh
