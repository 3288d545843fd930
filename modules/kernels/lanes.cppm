// SPDX-License-Identifier: Apache-2.0
// Lanes: the six types that arithmetic and conversions are done in, and runs of elements loaded into and stored from
// them. Twenty dtypes convert to each other through twenty loads and 120 stores instead of 400 loops. Internal.
module shardmesh.kernels:lanes;

import shardmesh.std;
import shardmesh.core;

namespace shardmesh {

/// A lane holds every value of the dtypes it is for; complex lanes are pairs.
enum class lane : std::uint8_t { none, i64, u64, f32, f64, c64, c128 };

/// The lane of a dtype; none for types without values (bits, float4_e2m1fn_x2, float8_e4m3). uint64 alone is u64, other
/// integers and bool are i64, floats up to 32 bits f32. float4_e2m1fn and float6 have lane f32 for loading only.
lane lane_of(dtype type);

/// Elements per pass: small enough that several buffers stay in the L1 cache.
inline constexpr std::int64_t pass_length = 256;
struct pass_buffer {
  alignas(64) std::byte bytes[static_cast<std::size_t>(pass_length) * 16];
};

/// Loads `count` (at most pass_length) elements of a whole-byte dtype that lie `stride` bytes apart.
void load_lanes(dtype type, const std::byte* from, std::int64_t stride, std::int64_t count, pass_buffer& out);

/// Stores lanes as elements of `type`, with PyTorch's conversion.
/// Precondition: both have lanes; `type` is not a sub-byte type.
/// `from` is the dtype the lanes were loaded from: a NaN's spelling in bfloat16 depends on it.
void store_lanes(dtype type, dtype from, const pass_buffer& in, std::byte* to, std::int64_t stride, std::int64_t count);

/// Loads elements of a sub-byte type: element i is at bit `offset + i * stride` of `from`, low bits first.
void load_packed(dtype type, const std::byte* from, std::int64_t offset, std::int64_t stride, std::int64_t count,
                 pass_buffer& out);

}  // namespace shardmesh
