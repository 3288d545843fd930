// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>
module shardmesh.deepspeed;

import :flat_run;

namespace shardmesh::deepspeed {

flat_run::flat_run(std::vector<flat_segment> segments) : segments_(std::move(segments)) {
  std::int64_t end = 0;
  for (const flat_segment& segment : segments_) ends_.push_back(end += segment.numel);
}

bool flat_run::cut(std::int64_t begin, std::int64_t count, std::vector<flat_piece>& pieces) const {
  bool is_whole = true;
  auto at = static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), begin) - ends_.begin());
  for (std::int64_t left = count; left > 0; ++at) {
    const flat_segment& segment = segments_[at];
    const std::int64_t first = begin + count - left - (ends_[at] - segment.numel);
    const std::int64_t here = std::min(left, segment.numel - first);
    if (here > 0 && segment.tensor) pieces.push_back({segment.part, *segment.tensor, first, here});
    is_whole &= here == 0 || segment.tensor.has_value();
    left -= here;
  }
  return is_whole;
}

result<void> add_planned(composed_reader& reader, const std::string& key, shardmesh::path where,
                         const planned_tensor& planned) {
  if (planned.whole) return reader.add_whole_tensor(key, std::move(where), planned.whole->first, planned.whole->second);
  tensor_entry entry;
  entry.key = key;
  entry.where = std::move(where);
  entry.type = planned.type;
  entry.shape = planned.shape;
  SHARDMESH_TRY(reader.add_tensor(std::move(entry)));
  std::int64_t at = 0;
  for (const flat_piece& piece : planned.pieces) {
    const std::int32_t chunk = reader.part(piece.part).contents().tensors[piece.tensor].first_chunk;
    for (const flat_box& run : boxes_of_range(planned.shape, {at, piece.count}))
      SHARDMESH_TRY(reader.add_chunk(run.where,
                                     {piece.part, piece.tensor, chunk, piece.first + run.begin - at, run.where.sizes}));
    at += piece.count;
  }
  return {};
}

}  // namespace shardmesh::deepspeed
