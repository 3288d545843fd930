// SPDX-License-Identifier: Apache-2.0
// python_object: pickled values as the plain Python objects that they stand for, whatever protocol wrote them.
// Not here: tensors and what else PyTorch adds (torch_file).
export module shardmesh.pickle:python_object;

import shardmesh.std;
import :value;

export namespace shardmesh::pickle {

/// Module and name of a global as Python 3 has them: protocols 0 to 2 spell some as Python 2 did. Views of `global`.
std::pair<std::string_view, std::string_view> python3_name(const value& global);
/// "collections.OrderedDict" of a global; "unknown" of other values.
std::string type_name(value global);
/// A record that calls this name of `builtins`.
bool is_builtin(const value& record, std::string_view name);
/// The i-th argument of a record's call; absent where it has fewer.
value argument_of(const value& record, std::size_t i);
/// collections.OrderedDict(), filled afterwards.
bool is_ordered_dict(const pickle::value& value);

/// The dict behind a mapping (dict, OrderedDict, defaultdict and Counter); absent for other values.
/// `pairs()` of it are the entries; a mapping without entries gives an absent value too: ask `is_mapping` first.
value mapping_entries(const pickle::value& value);
/// Python's `isinstance(value, Mapping)` for the mappings of the standard library that occur in checkpoints.
bool is_mapping(const pickle::value& value);

/// The items of a set or frozenset, also as protocol 2 spells them; of a torch.Size; of a list or tuple.
items sequence_items(const pickle::value& value);

/// Bytes of a bytes or bytearray, also as protocol 2 spells them (`_codecs.encode`).
std::optional<std::string> bytes_of(const pickle::value& value);

/// Start, stop and step of a range (`xrange` in protocol 2) that fits into 64 bits.
std::optional<std::array<std::int64_t, 3>> range_of(const pickle::value& value);

/// A global's dotted name ("torch.nn.functional.relu"), also of one that is written as getattr(class, name).
std::optional<std::string> global_text(const pickle::value& value);

}  // namespace shardmesh::pickle
