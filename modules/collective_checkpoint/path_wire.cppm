// SPDX-License-Identifier: Apache-2.0
// Not exported: encodes paths as bytes that ranks exchange.
module shardmesh.collective_checkpoint:path_wire;

import shardmesh.std;
import shardmesh.tree;
import shardmesh.comm;

namespace shardmesh {

void write(detail::wire_writer& out, const path& value);
path read_path(detail::wire_reader& in);

}  // namespace shardmesh
