// SPDX-License-Identifier: Apache-2.0
// Not exported: the origins of the sizes of a tensor, for messages about shapes that contradict them.
module shardmesh.mapping:size_sources;

import shardmesh.std;
import shardmesh.core;
import :index_rule;
import :model_sizes;
import :rules;
import :size_expression;

namespace shardmesh {

// Returns the factors of a tensor with their values, and the numbers of the configuration and of the user from which
// they are computed: "h = 24, d = 4, from hidden_size = 24 of the configuration". Factors without a value are left out,
// and at most ten of each list are named. Empty if no factor has a value.
std::string size_sources(const index_tensor& tensor, const named_sizes& values, const mapping_rules& mapping,
                         const model_sizes& sizes);

}  // namespace shardmesh
