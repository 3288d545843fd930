// SPDX-License-Identifier: Apache-2.0
// Not exported: flat buffers that are cut into parameters. Not here: which elements a parameter has (partition).
module shardmesh.deepspeed:flat_run;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import shardmesh.catalog;

namespace shardmesh::deepspeed {

// A one-dimensional tensor of a part, whole; without `tensor` its elements were not saved.
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

// Segments one after the other.
class flat_run {
 public:
  explicit flat_run(std::vector<flat_segment> segments);
  std::int64_t numel() const { return ends_.empty() ? 0 : ends_.back(); }
  // Appends the pieces of [begin, begin + count). False when elements of it were not saved.
  // Precondition: the range lies within. Cost: O(log segments + pieces).
  bool cut(std::int64_t begin, std::int64_t count, std::vector<flat_piece>& pieces) const;

 private:
  std::vector<flat_segment> segments_;
  std::vector<std::int64_t> ends_;
};

// A tensor as it will be seen: pieces that are its elements in row-major order, or a part's tensor as it is.
struct planned_tensor {
  dtype type = dtype::undefined;
  extents shape;
  std::vector<flat_piece> pieces;
  std::optional<std::pair<std::size_t, std::size_t>> whole;  // part, tensor
};

// Adds the entry with its chunks. errc::duplicate_key and those of `composed_reader::add_chunk`.
result<void> add_planned(composed_reader& reader, const std::string& key, shardmesh::path where,
                         const planned_tensor& planned);

}  // namespace shardmesh::deepspeed
