// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/dtype.hpp>
module shardmesh.kernels;

import :lanes;

namespace shardmesh {

lane lane_of(dtype type) {
  switch (type) {
    case dtype::boolean:
    case dtype::uint8:
    case dtype::int8:
    case dtype::int16:
    case dtype::int32:
    case dtype::int64:
    case dtype::uint16:
    case dtype::uint32:
      return lane::i64;
    case dtype::uint64:
      return lane::u64;
    case dtype::float16:
    case dtype::bfloat16:
    case dtype::float32:
    case dtype::float8_e4m3fn:
    case dtype::float8_e5m2:
    case dtype::float8_e4m3fnuz:
    case dtype::float8_e5m2fnuz:
    case dtype::float8_e8m0fnu:
    case dtype::float4_e2m1fn:
    case dtype::float6_e2m3:
    case dtype::float6_e3m2:
      return lane::f32;
    case dtype::float64:
      return lane::f64;
    case dtype::complex32:
    case dtype::complex64:
      return lane::c64;
    case dtype::complex128:
      return lane::c128;
    default:
      return lane::none;
  }
}

}  // namespace shardmesh
