// SPDX-License-Identifier: Apache-2.0
// Not exported: the contents that text and SVG pictures share: slices of distinct boxes with their owners, and traffic.
module shardmesh.draw:scene;

import shardmesh.std;
import shardmesh.layout;
import shardmesh.transfer;

namespace shardmesh {

// A box of a 2-d map and its owners, ascending.
struct tile {
  std::int64_t row = 0, column = 0, rows = 1, columns = 1;
  std::vector<owner_id> owners;
};

// One 2-d map: the interval of the outer dimensions, and the tiles of the last two.
struct slice {
  box outer;
  std::vector<tile> tiles;
};

struct scene {
  std::int64_t rows = 1, columns = 1;
  std::size_t outer_rank = 0;
  std::vector<slice> slices;
  std::int64_t slice_count = 0;  // including those not in `slices`; INT64_MAX if the count overflows
};

scene make_scene(const distribution& d, std::size_t max_slices);

// Formats owners: "0", "0-3", "0,2,5-7"; "." without owners. A label longer than `most` characters keeps the first
// owners that fit, and "..".
std::string owner_label(const std::vector<owner_id>& owners, std::size_t most);

// Returns the bytes per (sender, receiver) over all transfers; the two are different owners.
std::map<std::pair<owner_id, owner_id>, std::int64_t> traffic_of(const transfer_plan& plan);

}  // namespace shardmesh
