// SPDX-License-Identifier: Apache-2.0
// Not exported: the dict in the header of a NumPy array. The bytes around it are in `array_header`.
module shardmesh.npz:header_dict;

import shardmesh.std;
import shardmesh.core;
import :array_header;

namespace shardmesh::npz {

error bad_header(std::string message);

// Parses the text of the dict: sets the spelling of the type, the order, and the shape.
// \errors errc::bad_format, errc::rank_too_large, errc::overflow
// Cost: linear, without recursion.
result<array_header> parse_header_dict(std::string_view text);

}  // namespace shardmesh::npz
