// SPDX-License-Identifier: Apache-2.0
// Not exported: numpy's codes of dtypes ("<f4"), and the bytes of arrays of them.
module shardmesh.torch_file:numpy_code;

import shardmesh.std;

namespace shardmesh::torch_file {

// The most bytes of an array that is read as a value.
inline constexpr std::int64_t most_numpy_bytes = std::int64_t{64} << 20;
inline constexpr std::size_t most_dimensions = 64;  // numpy's own limit

// A dtype code after its byte order: "f8", "U3", "M8[ns]".
struct numpy_code {
  char order = '|', kind = 0;
  std::int64_t item_bytes = 0;
  std::string unit;
};

// Strict: it accepts only text that numpy itself would write.
std::optional<numpy_code> parse_numpy_code(std::string_view text);

// Returns the bytes of an array; nothing for an invalid shape, or if they do not fit in 64 bits.
std::optional<std::int64_t> bytes_of_shape(std::span<const std::int64_t> shape, std::int64_t item_bytes);

}  // namespace shardmesh::torch_file
