// SPDX-License-Identifier: Apache-2.0
// In-place changes of a view that files require: big-endian data, and PyTorch's lazy conjugate and negative bits.
export module shardmesh.kernels:elementwise;

import shardmesh.core;

// Each function returns errc::unsupported for memory that is not the host's.
export namespace shardmesh {

/// Reverses the bytes of every element, or of both parts of a complex element. One-byte and sub-byte types do not
/// change. An element that several indices share (stride 0) changes once per index, so pass views without such strides.
result<void> byte_swap(const tensor_view& view);

/// Negates the imaginary part by its sign bit, so 0 becomes -0. Real dtypes do not change.
/// Source: torch.Tensor.resolve_conj.
result<void> conjugate(const tensor_view& view);

/// Negates every element: the sign bits of floats and complex, the two's complement of integers. Zeros of the fnuz
/// types stay 0. errc::unsupported on bool, bits, float4, float6, float8_e8m0fnu, and float8_e4m3.
/// Source: torch.Tensor.resolve_neg.
result<void> negate(const tensor_view& view);

}  // namespace shardmesh
