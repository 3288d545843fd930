// SPDX-License-Identifier: Apache-2.0
// Not exported: values that lie in the pickle alone.
module shardmesh.torch_file:plain_data;

import shardmesh.std;
import shardmesh.pickle;

namespace shardmesh::torch_file {

// Returns whether a value may refer to storages. False for plain data, which lies in the pickle. Large values are not
// walked and count as true.
bool may_refer(const pickle::value& value);

}  // namespace shardmesh::torch_file
