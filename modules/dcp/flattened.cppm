// SPDX-License-Identifier: Apache-2.0
// Not exported: finds tensors that Megatron stored flat, and where their elements belong. Megatron's distributed
// optimizer cuts the elements of a rank's part of a parameter at arbitrary points. Before release 0.16, it stored a
// tensor [X, Y] with parts [x, y] as [X / x, Y / y, x * y], and recorded [X, Y] in the metadata's `mcore_data`.
// Source: megatron/core/dist_checkpointing/strategies/resharding.py
module shardmesh.dcp:flattened;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;
import :metadata;

namespace shardmesh::dcp {

inline constexpr std::string_view megatron_attribute = "mcore_data";

// A tensor of the catalog that is stored flat: [fragments..., elements of one part].
struct flattened_tensor {
  std::size_t index = 0;  // into the catalog's tensors
  extents shape;          // the tensor's own shape
  extents part;           // the sizes of one part; the tensor is a grid of parts
};

// Returns the tensors that `mcore_data` names, by index. An impossible shape becomes a problem that names the tensor;
// the tensor is then read in the form in which it is stored.
std::vector<flattened_tensor> find_flattened(const catalog& stored, const extras& extras, std::vector<error>& problems);

// A box of the whole tensor. Its elements, in row-major order, are a run of elements in a stored chunk, from `first`
// on.
struct whole_piece {
  box where;
  std::int64_t first = 0;
  friend bool operator==(const whole_piece&, const whole_piece&) = default;
};

// Returns where the elements of a stored chunk belong.
// \errors errc::bad_format for more than `most` pieces
result<std::vector<whole_piece>> pieces_of(const flattened_tensor& tensor, const box& chunk, std::size_t most);

}  // namespace shardmesh::dcp
