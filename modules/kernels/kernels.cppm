// SPDX-License-Identifier: Apache-2.0
// shardmesh.kernels: strided copies, casts and sums between tensor views, on the host (the reference backend).
// Not here: which bytes go where (transfer).
module;
#include <cstddef>
#include <cstdint>
export module shardmesh.kernels;

export import shardmesh.core;

export namespace shardmesh {

/// Copies `from` into `to`: equal sizes, any strides, memory that does not overlap. Different dtypes are converted with
/// the values and rounding of PyTorch's `Tensor.copy_`.
/// \errors errc::shape_mismatch; errc::unsupported for a pair of dtypes without a conversion (named in the message).
/// Cost: O(elements); contiguous runs move with memcpy.
result<void> copy(const tensor_view& to, const tensor_view& from);

/// True when `copy` converts between these dtypes.
bool is_convertible(dtype from, dtype to);

}  // namespace shardmesh
