// SPDX-License-Identifier: Apache-2.0
// Numpy arrays and scalars: decodes them from pickles, prints them as JSON, and pickles them again. Arrays of objects
// and of records stay opaque. Not exported.
module shardmesh.torch_file:numpy_value;

import shardmesh.std;
import shardmesh.core;
import shardmesh.pickle;

namespace shardmesh::torch_file {

struct numpy_value {
  std::string dtype;  // numpy's type string: "<f4", "|b1", "<U3", "<M8[ns]"
  std::vector<std::int64_t> shape;
  std::string data;  // elements in row-major order, in the dtype's byte order
  bool is_scalar = false;
};

// Decodes a numpy array or scalar. Empty for other values, for arrays beyond 64 MiB, for dtypes of objects, records,
// and unknown codes, and when the number of bytes does not fit the shape.
// Cost: O(bytes).
std::optional<numpy_value> numpy_value_of(const pickle::value& value);

// An array whose elements lie unchanged in the pickle.
struct numpy_array {
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> data;    // the shape's elements
  std::vector<std::int64_t> strides;  // in elements: row-major, column-major, or with transposed axes
};

// Like `numpy_value_of`, but for arrays of any length. Empty for scalars, and when the pickle has the bytes as text.
// Cost: O(1).
std::optional<numpy_array> numpy_array_of(const pickle::value& value);

// Returns JSON members: `"dtype":"<f4","shape":[2],"values":[..],"data":"<hexadecimal>"`. `values` are for human
// readers and only present for up to 64 elements. A scalar has no shape, and `value` instead of `values`.
std::string numpy_members(const numpy_value& value);

// Writes numpy's own pickle: scalar(dtype, bytes), or _reconstruct(...) with its state.
// \errors errc::bad_format when dtype, shape, and number of bytes disagree, or beyond 64 MiB
result<void> write_numpy(pickle::writer& out, const numpy_value& value);

}  // namespace shardmesh::torch_file
