// SPDX-License-Identifier: Apache-2.0
// Copies elements from one strided view to another, with PyTorch's conversions between element types.
export module shardmesh.kernels:copy;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh {

/// Copies `from` into `to`, which have equal sizes and do not overlap. Any strides are allowed: negative on both sides,
/// 0 in `from` (broadcast); with a stride of 0 in `to`, one of the values remains. Rank 0 to 16. Both views are in host
/// memory.
///
/// Different dtypes are converted to the values of PyTorch's `Tensor.copy_` on the CPU. Rounding is to nearest even.
/// Values that are too large become infinity (float16, bfloat16, float8_e5m2), 448 (float8_e4m3fn), or NaN (both fnuz
/// types, float8_e8m0fnu). Floats to integers truncate (out of range: docs/kernels.md). Complex to real drops the
/// imaginary part. Conversion to bool tests for "not zero". NaN payloads are those of PyTorch's AVX2 and AVX-512
/// builds. Sub-byte types copy only to themselves, in whole bytes.
/// Source: PyTorch 2.13, tests/oracle/make_casts.py.
/// \errors errc::shape_mismatch; errc::unsupported naming both dtypes if there is no conversion, or the device of
///         memory that is not the host's; errc::unaligned if a run of a sub-byte type does not start and end at whole
///         bytes. Nothing is written then.
/// Cost: O(elements). Contiguous runs move with memcpy, transposes in cache-sized tiles. No allocation.
result<void> copy(const tensor_view& to, const const_tensor_view& from);

/// Returns whether `copy` converts between these dtypes. Every dtype copies to itself. float4, float6, bits, and
/// float8_e4m3 (which PyTorch lacks) convert to nothing else.
bool is_convertible(dtype from, dtype to);

/// Checks a cast by the rule that every call that moves or loads tensors applies. Casts that may lose values (`widens`
/// is false) need `allow_narrowing`.
/// \errors errc::dtype_mismatch (undefined), errc::unsupported (no such conversion), errc::narrowing; each names both
///         dtypes
result<void> check_cast(dtype from, dtype to, bool allow_narrowing);

}  // namespace shardmesh
