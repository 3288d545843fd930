// SPDX-License-Identifier: Apache-2.0
// Reads headers of the usual form in one scan, because the header of a model of 20,000 tensors takes two megabytes.
// Headers of any other form, and their defects, are in header, which reads them with nlohmann-json.
module shardmesh.safetensors:usual_header;

import shardmesh.std;
import shardmesh.core;

namespace shardmesh::safetensors {

// An entry as it is in the JSON, before its checks.
struct raw_entry {
  std::string name;
  std::string type;
  std::array<std::int64_t, max_rank> shape{};
  std::size_t rank = 0;
  std::array<std::int64_t, 2> offsets{};  // relative to the data
  std::size_t offset_count = 0;
  bool has_type = false, has_shape = false, has_offsets = false;
};

// Takes an entry over; returns false when the entry is not valid.
using raw_entry_visitor = function_ref<bool(raw_entry& entry)>;

// Scans a header whose entries have dtype, shape, and data_offsets once each and nothing else, in any order. Returns
// false for every other text, JSON or not; the visited entries are then meaningless. Metadata keys are distinct.
// Cost: O(text). Source: the fields of safetensors/src/tensor.rs.
bool scan_usual_header(std::string_view text, std::vector<std::pair<std::string, std::string>>& metadata,
                       raw_entry_visitor visit);

}  // namespace shardmesh::safetensors
