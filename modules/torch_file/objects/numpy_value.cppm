// SPDX-License-Identifier: Apache-2.0
// Not exported: numpy's arrays and scalars as pickles hold them, their JSON and the way back. Not here: arrays of
// objects and of records, which stay opaque.
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

// Nothing for other values, for dtypes of objects, records and unknown codes, and where the bytes are not those of the
// shape. Cost: O(bytes).
std::optional<numpy_value> numpy_value_of(const pickle::value& value);

// An array whose elements lie in the pickle as they are.
struct numpy_array {
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> data;    // of the shape's elements
  std::vector<std::int64_t> strides;  // in elements: row-major, column-major, or of transposed axes
};

// As `numpy_value_of`, of arrays of any length; nothing for scalars, and where the bytes are spelled as text.
// Cost: O(1).
std::optional<numpy_array> numpy_array_of(const pickle::value& value);

// Members for JSON: `"dtype":"<f4","shape":[2],"values":[..],"data":"<hexadecimal>"`. `values` are for people and only
// there for a few elements; a scalar has no shape.
std::string numpy_members(const numpy_value& value);

// Writes what numpy pickles: scalar(dtype, bytes), or _reconstruct(...) with its state.
// errc::bad_format when dtype, shape and number of bytes disagree.
result<void> write_numpy(pickle::writer& out, const numpy_value& value);

}  // namespace shardmesh::torch_file
