// SPDX-License-Identifier: Apache-2.0
// Not exported: the runs of bytes and the boxes that a catalog describes, to find what is stored twice.
module shardmesh.checkpoint:stored_items;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;

namespace shardmesh {

// A stored run of bytes, and the entry that it belongs to.
struct stored_item {
  std::int32_t file = 0;
  std::int64_t begin = 0, end = 0;
  std::size_t entry = 0;    // tensors first, then objects
  std::int32_t chunk = -1;  // the position of its place in the catalog; -1 for an object
  friend auto operator<=>(const stored_item&, const stored_item&) = default;
};

// Returns the items of all entries, ascending.
std::vector<stored_item> items_of(const catalog& contents);

// Finds out whether a range of a file overlaps any of the given items.
class met_items {
 public:
  // `items` must be ascending.
  explicit met_items(std::vector<stored_item> items);
  bool meets(std::int32_t file, std::int64_t begin, std::int64_t end) const;

 private:
  std::vector<stored_item> items_;
  std::vector<std::int64_t> furthest_;  // the largest end of a file's items up to this one
};

// The boxes of a tensor's chunks that have elements, sorted.
std::vector<box> boxes_of(const catalog& contents, const tensor_entry& tensor);

}  // namespace shardmesh
