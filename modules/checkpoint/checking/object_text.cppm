// SPDX-License-Identifier: Apache-2.0
// object_text: prints an object's value for people, as Python would. Its JSON is in object_json.
export module shardmesh.checkpoint:object_text;

import shardmesh.std;
import shardmesh.checkpoint_core;

export namespace shardmesh {

/// Prints the value of an `object_value` (JSON with the tags of docs/formats.md) on one line, safe for a terminal:
/// 0.001, (1, 2), {'lr': 0.1, 'dtype': torch.float32}. The text is cut after about `most_bytes`, with "..." in place of
/// the rest. Cost: O(the JSON up to there). No recursion.
std::string object_text(std::string_view json, std::size_t most_bytes = 60);

/// Prints a number with the shortest digits that read back as the same double, and with ".0" if it is whole.
std::string float_text(double value);

/// Formats an object as JSON, as in objects.json and the C interface: {"kind","type","value"}. The value is null for an
/// object that has none.
std::string object_document(const object_value& value);

}  // namespace shardmesh
