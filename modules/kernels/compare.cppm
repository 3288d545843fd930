// SPDX-License-Identifier: Apache-2.0
// Compares the values of two views and finds where they differ. Also the text of one element.
export module shardmesh.kernels:compare;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh {

/// The conditions under which `compare` treats elements as equal. By default, both have one dtype and exactly the same
/// value.
struct compare_options {
  double tolerance = 0;       // T: values are equal if |a - b| <= T + T * |b|
  bool ignore_dtype = false;  // compare values of different dtypes; otherwise they are errc::dtype_mismatch
};

/// The result of `compare`. `first_index` is the first differing element in row-major order; empty if none differs.
struct comparison {
  std::int64_t different = 0;  // elements
  extents first_index;
  double largest_difference = 0;  // |a - b| over the differing elements; infinity unless both are finite
  bool equal() const { return different == 0; }
  friend bool operator==(const comparison&, const comparison&) = default;
};

/// Compares two views of equal sizes, with any strides. Without a tolerance, elements are equal if their values are:
/// NaN equals NaN, -0 equals 0, and everything else is compared bit by bit. With a tolerance, NaN still equals only
/// NaN, an infinity only itself, and a complex difference counts by its magnitude.
/// Integers are compared exactly with each other (even int64 with uint64) and with floating-point numbers. Other values
/// are compared as double. Types without arithmetic (bits, float4_e2m1fn_x2) compare their bits.
/// \errors errc::shape_mismatch; errc::dtype_mismatch; errc::unsupported with `ignore_dtype` for a type without values,
///         and for memory that is not the host's.
/// Cost: O(elements); equal contiguous memory takes a memcmp.
result<comparison> compare(const const_tensor_view& a, const const_tensor_view& b, const compare_options& options = {});

/// The element at `index` as text that reads back to the same value: "-1.5", "nan", "true", "(1+2j)"; "0x3f" for bits.
/// Precondition: the index lies within the view.
std::string value_text(const const_tensor_view& view, const extents& index);

}  // namespace shardmesh
