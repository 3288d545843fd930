// SPDX-License-Identifier: Apache-2.0
// Not exported: tensors that Megatron stored flat. Its distributed optimizer cuts the elements of a rank's part of a
// parameter at will; before release 0.16 such a tensor [X, Y] of parts [x, y] was stored as [X / x, Y / y, x * y], with
// [X, Y] in the metadata's `mcore_data`. Here: which these are, and where their elements belong.
// Source: megatron/core/dist_checkpointing/strategies/resharding.py
module shardmesh.dcp:flattened;

import shardmesh.std;
import shardmesh.core;
import shardmesh.catalog;
import :metadata;

namespace shardmesh::dcp {

inline constexpr std::string_view megatron_attribute = "mcore_data";

// A tensor of the catalog that is stored flat: [fragments..., elements of one part].
struct flattened_tensor {
  std::size_t index = 0;  // into the catalog's tensors
  extents shape;          // what it is
  extents part;           // the sizes of one part; the tensor is a grid of them
};

// Those that `mcore_data` names, by index. What it says of a tensor that cannot be, is a problem that names it: the
// tensor stays as it is stored.
std::vector<flattened_tensor> find_flattened(const catalog& stored, const extras& extras, std::vector<error>& problems);

// A box of the whole tensor whose elements, in row-major order, are a run of a stored chunk's, from `first` on.
struct whole_piece {
  box where;
  std::int64_t first = 0;
  friend bool operator==(const whole_piece&, const whole_piece&) = default;
};

// Where the elements of a stored chunk belong. \errors `beyond_limit` when that is more than `most` pieces
result<std::vector<whole_piece>> pieces_of(const flattened_tensor& tensor, const box& chunk, std::size_t most);

}  // namespace shardmesh::dcp
