// SPDX-License-Identifier: Apache-2.0
// Classifies pickled values by the kind of Python object. Their JSON is in `object_json`, tensors are in `item`, and
// containers and numbers are in pickle's python_object.
export module shardmesh.torch_file:object;

import shardmesh.std;
import shardmesh.core;
import shardmesh.pickle;
import :item;

export namespace shardmesh::torch_file {

enum class object_kind : std::uint8_t {
  none,
  boolean,
  integer,
  floating,
  complex,
  str,
  bytes,
  bytearray,
  list,
  tuple,
  dict,
  odict,
  set,
  frozenset,
  size,
  dtype,
  device,
  global,
  tensor,
  opaque_tensor,
  opaque
};
/// Returns the kind's name: "none", "bool", "int", "float", "complex", "str", "bytes", ..., "opaque-tensor", "opaque".
std::string_view name(object_kind kind);

/// A value's kind and its Python type: "builtins.int", "collections.OrderedDict", "argparse.Namespace".
struct object_class {
  object_kind kind = object_kind::opaque;
  std::string type;
};

/// Classifies a value, and never fails. Values that are not plain data are opaque, with the type name from the pickle.
/// Cost: O(1).
object_class classify(const torch_file::item& item, const pickle::value& value);

/// Describes an opaque tensor for messages: "sparse COO tensor", "quantized tensor", "nested tensor", "meta tensor",
/// "tensor subclass TYPE", or "tensor of an unknown representation".
std::string tensor_kind(const pickle::value& value);

}  // namespace shardmesh::torch_file
