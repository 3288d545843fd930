// SPDX-License-Identifier: Apache-2.0
// torch_object: what kind of Python object a pickled value is. Not here: its JSON (object_json), tensors (torch_item).
export module shardmesh.checkpoint:torch_object;

import shardmesh.std;
import shardmesh.core;
import :pickle;
import :torch_item;

export namespace shardmesh {

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
object_class classify(const torch_item& item, const pickle_value& value);

/// The dict behind a mapping (dict, OrderedDict, defaultdict and Counter); absent for other values.
/// `pairs()` of it are the entries; a mapping without entries gives an absent value too: ask `is_mapping` first.
pickle_value mapping_entries(const pickle_value& value);
/// Python's `isinstance(value, Mapping)` for the mappings of the standard library that occur in checkpoints.
bool is_mapping(const pickle_value& value);

/// The items of a set or frozenset, also as protocol 2 spells them; of a torch.Size; of a list or tuple.
pickle_items sequence_items(const pickle_value& value);

/// Bytes of a bytes or bytearray, also as protocol 2 spells them (`_codecs.encode`).
std::optional<std::string> bytes_of(const pickle_value& value);

/// Start, stop and step of a range (`xrange` in protocol 2) that fits into 64 bits.
std::optional<std::array<std::int64_t, 3>> range_of(const pickle_value& value);

/// A global's dotted name ("torch.nn.functional.relu"), also of one that is written as getattr(class, name).
std::optional<std::string> global_text(const pickle_value& value);

/// What an opaque tensor is, for messages: "sparse COO tensor", "quantized tensor", "nested tensor", "meta tensor",
/// "tensor subclass TYPE"; "tensor of an unknown representation" where its record does not say.
std::string tensor_kind(const pickle_value& value);

}  // namespace shardmesh
