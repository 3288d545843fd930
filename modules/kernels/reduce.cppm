// SPDX-License-Identifier: Apache-2.0
// Element-wise reduction of tensors, for the terms of a Partial. The choice of terms is in transfer; this module does
// not communicate.
export module shardmesh.kernels:reduce;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh {

/// Returns whether `op` is defined on this dtype. Integers and bool have every op but `avg`. Floats have every op but
/// the bit-wise ones. Complex types have sum, avg, and product. float8_e8m0fnu, float8_e4m3, float4, float6, and bits
/// have none, and `none` is defined nowhere.
bool is_combinable(dtype type, reduce_op op);

/// to[i] = to[i] op from[i], in the dtype of `to`; `from` is first converted to it as `copy` does. The dtype of `to`
/// thus sets the precision of a long sum. float16 and smaller are combined in float32 and rounded. Integers wrap. On
/// bool, sum is "or" and product is "and". `avg` only sums; `divide` by the number of terms at the end. min and max
/// yield NaN if either side is NaN (as torch.minimum). When the values are equal (-0 and 0), `to` keeps its own.
/// \errors errc::shape_mismatch; errc::unsupported if the op is not defined on the dtype of `to`, there is no
///         conversion, or memory is not the host's.
/// Cost: O(elements), no allocation.
result<void> accumulate(const tensor_view& to, const const_tensor_view& from, reduce_op op);

/// Sets every element to the identity of `op`: 0 for sum and avg, 1 for product, the largest value (infinity) for min,
/// the smallest for max, all bits set for band, 0 for bor and bxor. errc::unsupported if the op is not defined on the
/// dtype.
result<void> fill_identity(const tensor_view& view, reduce_op op);

/// Returns whether `scale` and `divide` are defined on this dtype: floats and complex types of whole bytes, except
/// float8_e4m3.
bool is_scalable(dtype type);

/// view[i] = view[i] * factor, computed in double and rounded to the dtype as `copy` does. errc::unsupported on dtypes
/// that are not `is_scalable`.
result<void> scale(const tensor_view& view, double factor);

/// view[i] = view[i] / divisor, computed in double and rounded as `copy` does, so that the average of a sum has
/// PyTorch's value. errc::unsupported as `scale`.
result<void> divide(const tensor_view& view, double divisor);

}  // namespace shardmesh
