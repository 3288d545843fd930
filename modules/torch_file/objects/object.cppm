// SPDX-License-Identifier: Apache-2.0
// torch_object: what kind of Python object a pickled value is. Not here: its JSON (object_json), tensors
// (item), containers and numbers (pickle's python_object).
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
/// "none", "bool", "int", "float", "complex", "str", "bytes", ..., "opaque-tensor", "opaque".
std::string_view name(object_kind kind);

/// A value's kind and the name of its Python type: "builtins.int", "collections.OrderedDict", "argparse.Namespace".
struct object_class {
  object_kind kind = object_kind::opaque;
  std::string type;
};

/// Never fails: what is not plain data is opaque, with the type name that its pickle states. Cost: O(1).
object_class classify(const torch_file::item& item, const pickle::value& value);

/// What an opaque tensor is, for messages: "sparse COO tensor", "quantized tensor", "nested tensor", "meta tensor",
/// "tensor subclass TYPE"; "tensor of an unknown representation" where its record does not say.
std::string tensor_kind(const pickle::value& value);

}  // namespace shardmesh::torch_file
