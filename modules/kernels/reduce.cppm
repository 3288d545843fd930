// SPDX-License-Identifier: Apache-2.0
// Element-wise combination, for the terms of a Partial. Not here: which terms there are (transfer), communication.
export module shardmesh.kernels:reduce;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh {

/// How two elements become one. An average is a `sum` and a `divide` by the number of terms.
enum class combine_op : std::uint8_t { sum, product, min, max, band, bor, bxor };

/// "sum", "product", "min", "max", "band", "bor", "bxor".
std::string_view name(combine_op op);

/// True when `op` is defined on this dtype: everything on integers and bool, sum and product on complex, all but the
/// bit-wise ones on floats; nothing on float4, float6 and bits.
bool is_combinable(dtype type, combine_op op);

/// to[i] = to[i] op from[i], in the dtype of `to`; `from` is converted to it first as `copy` does. So the precision of
/// a long sum is the caller's choice of `to`. float16 and smaller are combined in float32 and rounded. Integers wrap;
/// bool sum is "or", product "and". min and max yield NaN when either side is NaN (as torch.minimum).
/// \errors errc::shape_mismatch; errc::unsupported when the op is not defined on `to`'s dtype or there is no
/// conversion. Cost: O(elements), no allocation.
result<void> accumulate(const tensor_view& to, const tensor_view& from, combine_op op);

/// Sets every element to the identity of `op`: 0 for sum, 1 for product, the largest value (infinity) for min, the
/// smallest for max, all bits set for band, 0 for bor and bxor. errc::unsupported when the op is not defined on the
/// dtype.
result<void> fill_identity(const tensor_view& view, combine_op op);

/// view[i] = view[i] * factor, computed in double and rounded to the dtype as `copy` does. errc::unsupported on
/// integers, bool and bits.
result<void> scale(const tensor_view& view, double factor);

/// view[i] = view[i] / divisor, computed in double and rounded as `copy` does: the average of a sum has PyTorch's
/// value. errc::unsupported on integers, bool and bits.
result<void> divide(const tensor_view& view, double divisor);

}  // namespace shardmesh
