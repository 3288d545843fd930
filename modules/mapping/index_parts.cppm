// SPDX-License-Identifier: Apache-2.0
// Not exported: the parts of the tensors on one side of a rule, before the sides are joined.
module shardmesh.mapping:index_parts;

import shardmesh.std;
import shardmesh.core;
import :index_relation;
import :index_rule;
import :size_expression;

namespace shardmesh {

// A loop of one side of a part, by the name of its factor.
struct side_loop {
  index_factor factor;
  std::int64_t extent = 1;
  index_loop::step step;
};

// The elements of a tensor that belong to one part.
struct tensor_part {
  std::size_t tensor = 0;
  extents origin;
  std::vector<side_loop> loops;
};

using parts_by_name = std::map<std::string, tensor_part, std::less<>>;

// Returns the number of indices that a term of a dimension has.
// \errors errc::missing_key for a factor of unknown size; errc::invalid_argument, errc::overflow
result<std::int64_t> size_of(const index_tensor& tensor, const index_term& term, const named_sizes& sizes);

// Adds the parts of tensor `number`: one for each choice of a segment in each of its sums. Returns the tensor's shape
// and its number of related elements.
result<related_tensor> add_parts(const index_tensor& tensor, std::size_t number, bool is_left, const named_sizes& sizes,
                                 parts_by_name& parts);

}  // namespace shardmesh
