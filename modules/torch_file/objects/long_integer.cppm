// SPDX-License-Identifier: Apache-2.0
// Not exported: integers of any size as pickles.
module shardmesh.torch_file:long_integer;

import shardmesh.std;

namespace shardmesh::torch_file {

// Pickles an integer of any size as LONG1 or LONG4: two's complement, little-endian. Empty if `digits` is not a number.
std::optional<std::vector<std::byte>> pickle_of_digits(std::string_view digits);

}  // namespace shardmesh::torch_file
