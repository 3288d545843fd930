// SPDX-License-Identifier: Apache-2.0
// Not exported: the elements of two mappings that are applied in order, without the tensors between them.
module shardmesh.mapping:piece_chain;

import shardmesh.std;
import shardmesh.core;
import :element_pieces;

namespace shardmesh {

// Replaces the sources of `second`, which are targets of `first`, by the sources of `first`.
//
// Two pieces that meet in a tensor relate the same elements of it by loops of their own. In each dimension, the loops
// are divided until they step alike. Where the boundaries of the two differ, the result has several pieces. Each target
// of the result is proven: its pieces have as many elements as the target.
// \errors errc::unsupported for a target that would have more than 65,536 pieces, or repetitions that a later mapping
//         removes only in part; errc::rank_too_large; each names the target's key
// Cost: O(pieces of the result).
result<std::vector<target_elements>> chained(std::span<const target_elements> first,
                                             std::vector<target_elements> second);

}  // namespace shardmesh
