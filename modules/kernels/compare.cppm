// SPDX-License-Identifier: Apache-2.0
// compare: do two views hold the same values, and where not. And the text of one element.
export module shardmesh.kernels:compare;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh {

/// Which elements `compare` takes for the same. By default those of one dtype with exactly the same value.
struct compare_options {
  double tolerance = 0;       // T: values are the same when |a - b| <= T + T * |b|
  bool ignore_dtype = false;  // compare values of different dtypes; otherwise they are errc::dtype_mismatch
};

/// What `compare` found. `first_index` is the row-major first differing element, empty when none differs.
struct comparison {
  std::int64_t different = 0;  // elements
  extents first_index;
  double largest_difference = 0;  // |a - b| over the differing elements that are numbers; infinity where only one is
  bool equal() const { return different == 0; }
  friend bool operator==(const comparison&, const comparison&) = default;
};

/// Compares two views of equal sizes, any strides. Without tolerance elements are the same when their values are: NaN
/// is NaN, -0 is 0, everything else bit by bit. With a tolerance NaN still only equals NaN, an infinity only itself,
/// and a complex difference is a magnitude. Integers are compared exactly, with each other (int64 against uint64 too)
/// and with floating numbers; others as double. Types without arithmetic (bits, float4_e2m1fn_x2) compare their bits.
/// \errors errc::shape_mismatch; errc::dtype_mismatch; errc::unsupported with `ignore_dtype` for a type without values.
/// Cost: O(elements); equal contiguous memory is compared with memcmp.
result<comparison> compare(const const_tensor_view& a, const const_tensor_view& b, const compare_options& options = {});

/// The element at `index` as text that reads back to the same value: "-1.5", "nan", "true", "(1+2j)", "0x3f" for bits.
/// Precondition: the index lies within.
std::string value_text(const const_tensor_view& view, const extents& index);

}  // namespace shardmesh
