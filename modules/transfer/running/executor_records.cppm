// SPDX-License-Identifier: Apache-2.0
// Not exported: the records that ranks compare when they make an executor together: transfers, names, and options.
module shardmesh.transfer:executor_records;

import shardmesh.std;
import shardmesh.core;
import shardmesh.comm;
import :executor;
import :plan;

namespace shardmesh {

// Returns the names of the transfers in errors: the keys, or "transfer 0", "transfer 1", and so on.
std::vector<std::string> names_of(const transfer_plan& plan, std::span<const std::string> keys);

// Returns a record of each transfer, and one of the options. Called only when the ranks disagree.
std::vector<agreement_record> records_of(const transfer_plan& plan, std::span<const std::string> names,
                                         const run_options& run);

// Returns a digest that is equal on two ranks exactly when their records are equal.
digest128 digest_of_all(const transfer_plan& plan, std::span<const std::string> keys, const run_options& run);

}  // namespace shardmesh
