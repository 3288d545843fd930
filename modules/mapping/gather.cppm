// SPDX-License-Identifier: Apache-2.0
// Not exported: fills a box of a target tensor from boxes of source tensors, by the arithmetic of an `index_piece`.
module shardmesh.mapping:gather;

import shardmesh.std;
import shardmesh.core;
import :index_relation;

namespace shardmesh {

// The indices [begin, begin + size) of a loop.
struct loop_range {
  std::int64_t begin = 0, size = 1;
  friend bool operator==(const loop_range&, const loop_range&) = default;
};

// Calls `visit` for disjoint boxes of the piece's loops whose elements on the right side are those of the piece in
// `part`. A loop that the right side lacks has the range [0, 1).
// Cost: at most two boxes per factor and dimension of `part`.
result<void> for_each_loop_box(const index_piece& piece, const box& part,
                               function_ref<result<void>(std::vector<loop_range>& ranges)> visit);

// Reads a box of a left tensor into `to`, which has the sizes of the box, and any strides and dtype.
using box_reader = function_ref<result<void>(const box& part, const tensor_view& to)>;

// Fills the elements of `to` that come from `piece`. `to` is a view of the box `part` of the piece's right tensor.
// Elements that have the same order on both sides are read directly into `to`.
// \param repetition  the index of each loop that the right side lacks, in the order of the loops; empty: all 0
// \errors those of `read`; errc::no_memory
// Memory: 4 MiB beside `to`
result<void> gather(const index_piece& piece, const box& part, const tensor_view& to, box_reader read,
                    std::span<const std::int64_t> repetition = {});

// Returns the dimensions of a right tensor, without the first `stacked` ones, in the order in which they move through
// the left tensors: the fastest first. Returns nothing if every piece has the same fastest loop on both sides, so that
// runs of the right tensor are runs of the left ones.
std::vector<std::size_t> transposed_dimensions(const index_relation& relation, std::size_t right_tensor,
                                               std::size_t stacked);

// Fills the elements of `to` that are filler of a right tensor with an element of any dtype that converts to that of
// `to`. `to` is a view of the box `part` of the tensor.
result<void> fill(const index_filler& filler, const box& part, const tensor_view& to, const const_tensor_view& element);

}  // namespace shardmesh
