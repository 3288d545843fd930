// SPDX-License-Identifier: Apache-2.0
// Not exported: the conditions on a transfer before it is planned: equal shapes, a cast that exists, whole bytes, and
// no gaps or overlaps.
module shardmesh.transfer:transfer_check;

import shardmesh.std;
import shardmesh.core;
import :plan;
import :transfer_class;

namespace shardmesh {

// Checks a transfer, and returns the class of transfers that equal it. The errors are those of `plan`, without the
// transfer's index.
result<transfer_class> make_class(const tensor_transfer& t, const plan_options& options);

}  // namespace shardmesh
