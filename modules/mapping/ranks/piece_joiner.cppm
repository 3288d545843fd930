// SPDX-License-Identifier: Apache-2.0
// Not exported: two pieces of successive mappings as pieces from the first source to the last target.
module shardmesh.mapping:piece_joiner;

import shardmesh.std;
import shardmesh.core;
import :index_relation;

namespace shardmesh {

inline constexpr std::int64_t most_pieces = std::int64_t{1} << 16;

// The error for a chain that divides a tensor into more than `most_pieces`. `found`: their number.
error too_many_pieces(std::string found);

// Joins a piece of the first mapping and one of the second in the tensor between them.
// \errors errc::unsupported for more than `most_pieces`; errc::rank_too_large
result<std::vector<index_piece>> joined(const index_piece& first, const index_piece& second);

}  // namespace shardmesh
