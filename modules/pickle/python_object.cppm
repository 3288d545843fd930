// SPDX-License-Identifier: Apache-2.0
// Interprets pickled values as plain Python objects, whatever protocol wrote them. Tensors and other PyTorch types are
// in torch_file.
export module shardmesh.pickle:python_object;

import shardmesh.std;
import :value;

export namespace shardmesh::pickle {

/// Returns a global's module and name as Python 3 spells them; protocols 0 to 2 spell some as Python 2 did. The views
/// point into the graph of `global`.
std::pair<std::string_view, std::string_view> python3_name(const value& global);
/// Returns a global's dotted name, such as "collections.OrderedDict"; "unknown" for other values.
std::string type_name(value global);
/// Returns true for a record that calls this name of `builtins`.
bool is_builtin(const value& record, std::string_view name);
/// Returns the i-th argument of a record's call; absent when it has fewer.
value argument_of(const value& record, std::size_t i);
/// Returns true for a collections.OrderedDict() that was built without arguments and filled later.
bool is_ordered_dict(const pickle::value& value);

/// Returns the dict behind a mapping (dict, OrderedDict, defaultdict, or Counter); absent for other values. Its
/// `pairs()` are the entries. A mapping without entries also yields an absent value: ask `is_mapping` first.
value mapping_entries(const pickle::value& value);
/// Returns Python's `isinstance(value, Mapping)` for the standard library's mappings that occur in checkpoints.
bool is_mapping(const pickle::value& value);

/// Returns the items of a set or frozenset (also in the form of protocol 2), a torch.Size, a list, or a tuple.
items sequence_items(const pickle::value& value);

/// Returns the bytes of a bytes or bytearray, also in the form of protocol 2 (`_codecs.encode`).
std::optional<std::string> bytes_of(const pickle::value& value);

/// Returns start, stop, and step of a range (`xrange` in protocol 2) when they fit into 64 bits.
std::optional<std::array<std::int64_t, 3>> range_of(const pickle::value& value);

/// Returns a global's dotted name ("torch.nn.functional.relu"), also when it is written as getattr(class, name).
std::optional<std::string> global_text(const pickle::value& value);

}  // namespace shardmesh::pickle
