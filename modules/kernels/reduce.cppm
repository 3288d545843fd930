// SPDX-License-Identifier: Apache-2.0
// Element-wise combination, for the terms of a Partial. Not here: which terms there are (transfer), communication.
export module shardmesh.kernels:reduce;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh {

/// True when `op` is defined on this dtype: everything but `avg` on integers and bool, sum, avg and product on complex,
/// all but the bit-wise ones on floats; nothing on float4, float6 and bits, and `none` nowhere.
bool is_combinable(dtype type, reduce_op op);

/// to[i] = to[i] op from[i], in the dtype of `to`; `from` is converted to it first as `copy` does. So the precision of
/// a long sum is the caller's choice of `to`. float16 and smaller are combined in float32 and rounded. Integers wrap;
/// bool sum is "or", product "and". `avg` sums: `divide` by the number of terms at the end. min and max yield NaN when
/// either side is NaN (as torch.minimum); of equal values (-0 and 0) that of `to` stays.
/// \errors errc::shape_mismatch; errc::unsupported when the op is not defined on `to`'s dtype or there is no
/// conversion. Cost: O(elements), no allocation.
result<void> accumulate(const tensor_view& to, const const_tensor_view& from, reduce_op op);

/// Sets every element to the identity of `op`: 0 for sum and avg, 1 for product, the largest value (infinity) for min,
/// the smallest for max, all bits set for band, 0 for bor and bxor. errc::unsupported when the op is not defined on the
/// dtype.
result<void> fill_identity(const tensor_view& view, reduce_op op);

/// True when `scale` and `divide` are defined on this dtype: floats and complex types of whole bytes.
bool is_scalable(dtype type);

/// view[i] = view[i] * factor, computed in double and rounded to the dtype as `copy` does. errc::unsupported on
/// integers, bool, bits and sub-byte types.
result<void> scale(const tensor_view& view, double factor);

/// view[i] = view[i] / divisor, computed in double and rounded as `copy` does: the average of a sum has PyTorch's
/// value. errc::unsupported on what `scale` refuses.
result<void> divide(const tensor_view& view, double divisor);

}  // namespace shardmesh
