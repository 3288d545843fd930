// SPDX-License-Identifier: Apache-2.0
// pickle_names: what a pickle names beside plain data: the functions and classes that Python would look up and call.
// Nothing is looked up here. Not here: where a checkpoint's pickles are (globals).
export module shardmesh.pickle:names;

import shardmesh.std;
import shardmesh.core;
import :value;

export namespace shardmesh::pickle {

/// One thing that a pickle names.
struct used_name {
  /// "module.name" as Python 3 spells it; what has no such name stands in angle brackets: "<extension 5>",
  /// "<call of builtins.getattr(os, 'system')>", "<bytes after the end>", "<unreadable from byte 12>".
  std::string text;
  /// It is one of the classes and functions that checkpoints are made of (see `is_harmless_global`).
  bool harmless = false;
  std::int64_t count = 0;
  /// Published scanners call it dangerous (see `is_dangerous_global`), or it is a way to such a name: attributes by
  /// name, a change of a class, a name that cannot be told. Neither harmless nor dangerous: unknown, such as the
  /// classes of the program that wrote the pickle.
  bool dangerous = false;
};

struct used_names {
  std::vector<used_name> names;  // each once, in order
  bool is_cut = false;           // the last pickle would go on behind the bytes
};

/// Everything that the pickles in `bytes` name. Opcode by opcode as Python's unpickler goes, with its stack and its
/// memo: also what lies before a defect, in discarded values, and in pickles behind the first one. The five pickles
/// of torch.save before 1.6 are expected; what follows them is bulk data. Never fails.
/// Cost: O(bytes); memory as pickle::graph.
used_names names_in(std::span<const std::byte> bytes);

/// A pickle and the names in its bytes, found in one run over them.
struct named_graph {
  pickle::graph graph;
  used_names names;  // as of `names_in`
  /// \errors those of `pickle::graph::parse`: of a pickle that it refuses, `names_in` alone tells the names
  static result<named_graph> parse(std::vector<std::byte> bytes);
};

/// True for names that start processes, run or import code, open files or connections, or lead to such names: the lists
/// of picklescan, modelscan and fickling, and the names of published ways around them. Modules count with all that lies
/// below them; "os.system" as an attribute of any module is meant, too.
bool is_dangerous_global(std::string_view module_name, std::string_view attribute);

/// True for the short list of classes and functions that PyTorch's and numpy's own data is made of and that do nothing
/// but build that data. Exact names only.
bool is_harmless_global(std::string_view module_name, std::string_view attribute);

}  // namespace shardmesh::pickle
