// SPDX-License-Identifier: Apache-2.0
// Not exported: cuts flat buffers into parameters. The elements of each parameter are determined in partition.
module shardmesh.deepspeed:flat_run;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import shardmesh.checkpoint_core;

namespace shardmesh::deepspeed {

// A whole one-dimensional tensor of a part. Without `tensor`, its elements were not saved.
struct flat_segment {
  std::size_t part = 0;
  std::optional<std::size_t> tensor;
  std::int64_t numel = 0;
};

// Elements [first, first + count) of a part's tensor.
struct flat_piece {
  std::size_t part = 0, tensor = 0;
  std::int64_t first = 0, count = 0;
};

// A sequence of consecutive segments.
class flat_run {
 public:
  explicit flat_run(std::vector<flat_segment> segments);
  std::int64_t numel() const { return ends_.empty() ? 0 : ends_.back(); }
  // Appends the pieces of [begin, begin + count). Returns false when some of its elements were not saved. Precondition:
  // the range is within the run. Cost: O(log segments + pieces).
  bool cut(std::int64_t begin, std::int64_t count, std::vector<flat_piece>& pieces) const;

 private:
  std::vector<flat_segment> segments_;
  std::vector<std::int64_t> ends_;
};

// A tensor of the checkpoint: either pieces with its elements in row-major order, or a whole tensor of a part.
struct planned_tensor {
  dtype type = dtype::undefined;
  extents shape;
  std::vector<flat_piece> pieces;
  std::optional<std::pair<std::size_t, std::size_t>> whole;  // part, tensor
};

// Adds the entry with its chunks. errc::duplicate_key and the errors of `composed_reader::add_chunk`.
result<void> add_planned(composed_reader& reader, const std::string& key, shardmesh::path where,
                         const planned_tensor& planned);

}  // namespace shardmesh::deepspeed
