// SPDX-License-Identifier: Apache-2.0
// held_parts: the check of one rank's state on its own, before ranks compare their states. Exports no name to users.
export module shardmesh.collective_checkpoint:held_parts;

import shardmesh.std;
import shardmesh.core;
import shardmesh.tree;

export namespace shardmesh::detail {

/// Checks one rank's state on its own: boxes lie within shapes, no box occurs twice, and the memory fits.
/// \errors errc::out_of_bounds, errc::shape_mismatch, errc::dtype_mismatch, errc::overflow, errc::overlap,
///         errc::invalid_argument, errc::unsupported (memory that no backend reaches); each names key and box
result<void> check_held(const const_local_state& state);

}  // namespace shardmesh::detail
