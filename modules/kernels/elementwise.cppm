// SPDX-License-Identifier: Apache-2.0
// In-place changes of one view that files ask for: big-endian data, and PyTorch's lazy conjugate and negative bits.
export module shardmesh.kernels:elementwise;

import shardmesh.core;

// Each gives errc::unsupported for memory that is not the host's.
export namespace shardmesh {

/// Reverses the bytes of every element (of both parts of a complex one). Nothing to do for one-byte and sub-byte types.
/// An element that several indices share (stride 0) changes once per index: give views without such strides.
result<void> byte_swap(const tensor_view& view);

/// Negates the imaginary part (the sign bit, so 0 becomes -0). Real dtypes are left as they are.
/// Source: torch.Tensor.resolve_conj.
result<void> conjugate(const tensor_view& view);

/// Negates: the sign bits of floats and complex, two's complement of integers. errc::unsupported on bool, on float
/// types without a sign (float8_e8m0fnu) and on bits. Zeros of the fnuz types stay 0. Source: torch.Tensor.resolve_neg.
result<void> negate(const tensor_view& view);

}  // namespace shardmesh
