// SPDX-License-Identifier: Apache-2.0
// Not exported: compares two ranks' items for equal bytes. The consequences are in `merge`.
module shardmesh.dcp:item_comparison;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;

namespace shardmesh::dcp {

// Compares items of one folder. Small items are compared byte for byte. For larger archives, the directories are
// compared: names, sizes, and CRC-32 of all records. All comparisons together read a bounded number of bytes.
class item_comparison {
 public:
  // Returns whether two items are equal. errc::io, errc::out_of_bounds, naming the file. Items beyond the bound that
  // are not archives count as different.
  result<bool> are_equal(const byte_source& a, const byte_source& b);

 private:
  static result<bool> have_equal_bytes(const byte_source& a, const byte_source& b);

  std::int64_t left_bytes_ = std::int64_t{256} << 20;
};

}  // namespace shardmesh::dcp
