// SPDX-License-Identifier: Apache-2.0
// Lanes: the six types in which arithmetic and conversions are done. Runs of elements are loaded into lanes and stored
// from them. Twenty dtypes convert to each other through twenty loads and 120 stores instead of 400 loops. Internal.
module shardmesh.kernels:lanes;

import shardmesh.std;
import shardmesh.core;

namespace shardmesh {

/// The type that holds every value of a group of dtypes; complex lanes are pairs.
enum class lane : std::uint8_t { none, i64, u64, f32, f64, c64, c128 };

/// The lane of a dtype; none for types without values (bits, float4_e2m1fn_x2, float8_e4m3). Only uint64 is u64. Other
/// integers and bool are i64; floats up to 32 bits are f32. float4_e2m1fn and float6 have lane f32 for loading only.
lane lane_of(dtype type);

/// Elements per pass: few enough that several buffers stay in the L1 cache.
inline constexpr std::int64_t pass_length = 256;
struct pass_buffer {
  alignas(64) std::byte bytes[static_cast<std::size_t>(pass_length) * 16];
};

/// Loads `count` (at most pass_length) elements of a whole-byte dtype that lie `stride` bytes apart.
void load_lanes(dtype type, const std::byte* from, std::int64_t stride, std::int64_t count, pass_buffer& out);

/// Stores lanes as elements of `type`, with PyTorch's conversion. `from` is the dtype from which the lanes were loaded;
/// a NaN's bits in bfloat16 depend on it.
/// Precondition: both dtypes have lanes, and `type` is not a sub-byte type.
void store_lanes(dtype type, dtype from, const pass_buffer& in, std::byte* to, std::int64_t stride, std::int64_t count);

/// Loads elements of a sub-byte type: element i is at bit `offset + i * stride` of `from`, low bits first.
void load_packed(dtype type, const std::byte* from, std::int64_t offset, std::int64_t stride, std::int64_t count,
                 pass_buffer& out);

}  // namespace shardmesh
