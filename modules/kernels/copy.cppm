// SPDX-License-Identifier: Apache-2.0
// copy: elements from one strided view to another, with PyTorch's conversions between element types.
export module shardmesh.kernels:copy;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh {

/// Copies `from` into `to`: equal sizes, memory that does not overlap. Strides may be anything: negative on both sides,
/// 0 in `from` (broadcast); a stride of 0 in `to` keeps one of the values. Rank 0 to 16. Both views are host memory.
///
/// Different dtypes are converted to the values of PyTorch's `Tensor.copy_` on the CPU: round to nearest even; too
/// large values become infinity (float16, bfloat16, float8_e5m2), 448 (float8_e4m3fn) or NaN (both fnuz types,
/// float8_e8m0fnu); floats to integers truncate (out of range: docs/kernels.md); complex to real drops the
/// imaginary part; to bool is "not zero". NaN payloads are those of PyTorch's AVX2 and AVX-512 builds. Sub-byte types
/// copy to themselves in whole bytes. Source: PyTorch 2.13, tests/oracle/make_casts.py.
/// \errors errc::shape_mismatch; errc::unsupported naming both dtypes when there is no conversion, or the device of
///         memory that is not the host's; errc::unaligned when a run of a sub-byte type does not start and end at whole
///         bytes. Nothing is written then.
/// Cost: O(elements). Contiguous runs move with memcpy, transposes in cache-sized tiles; no allocation.
result<void> copy(const tensor_view& to, const const_tensor_view& from);

/// True when `copy` converts between these dtypes. Every dtype copies to itself; float4, float6, bits and float8_e4m3
/// (which PyTorch lacks) convert to nothing else.
bool is_convertible(dtype from, dtype to);

/// Whether elements may be cast: the rule of every call that moves or loads tensors. Casts that lose values (those that
/// do not `widens`) have to be allowed.
/// \errors errc::dtype_mismatch (undefined), errc::unsupported (no such conversion), errc::narrowing; each names both
///         dtypes
result<void> check_cast(dtype from, dtype to, bool allow_narrowing);

}  // namespace shardmesh
