// SPDX-License-Identifier: Apache-2.0
// Not exported: the numbers of the description's byte form. Its values are in description.
module shardmesh.delta:description_form;

import shardmesh.std;

namespace shardmesh::delta {

// How a tensor is stored.
enum class tensor_form : std::uint8_t { alone, on_base, archive };
// A step of a path.
enum class step_kind : std::uint8_t { index, name, integer, python };

inline constexpr std::uint8_t coding_bits = 3, compressed_bit = 4;
// Bits of a tensor's properties.
inline constexpr std::uint8_t gradient_bit = 1, pinned_bit = 2, strides_bit = 4;

}  // namespace shardmesh::delta
