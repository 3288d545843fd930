// SPDX-License-Identifier: Apache-2.0
// Lists the functions and classes that Python would look up and call while loading a pickle. This code looks up
// nothing. `pickle_globals` finds a checkpoint's pickles.
export module shardmesh.pickle:names;

import shardmesh.std;
import shardmesh.core;
import :value;

export namespace shardmesh::pickle {

/// One name that a pickle refers to.
struct used_name {
  /// "module.name" as Python 3 spells it. Entries without such a name are in angle brackets: "<extension 5>", "<call of
  /// builtins.getattr(os, 'system')>", "<bytes after the end>", "<unreadable from byte 12>".
  std::string text;
  /// True for the classes and functions that checkpoints are made of (see `is_harmless_global`).
  bool harmless = false;
  std::int64_t count = 0;
  /// True when published scanners call the name dangerous (see `is_dangerous_global`), or when it can lead to such a
  /// name. Attribute look-ups by name, changes to a class, and names that are not text can do so. A name that is
  /// neither harmless nor dangerous is unknown, such as a class of the program that wrote the pickle.
  bool dangerous = false;
};

struct used_names {
  std::vector<used_name> names;  // each once, in order of appearance
  bool is_cut = false;           // the last pickle continues past the bytes
};

/// Lists every name in the pickles in `bytes`. It follows the opcodes as Python's unpickler does, with its stack and
/// memo. The list includes names before a defect, in discarded values, and in pickles after the first one. Files of
/// torch.save before 1.6 have five pickles; the bytes after them are bulk data. Never fails.
/// Cost: O(bytes); memory as pickle::graph.
used_names names_in(std::span<const std::byte> bytes);

/// A pickle and the names in its bytes, both from one pass.
struct named_graph {
  pickle::graph graph;
  used_names names;  // the same as from `names_in`
  /// \errors those of `pickle::graph::parse`; for a pickle that it refuses, only `names_in` lists the names
  static result<named_graph> parse(std::vector<std::byte> bytes);
};

/// Returns true for names that start processes, run or import code, open files or connections, or lead to such names.
/// The table combines the lists of picklescan, modelscan, and fickling with the published bypasses of these scanners. A
/// listed module includes its submodules. "os.system" as an attribute of any other module counts as well.
bool is_dangerous_global(std::string_view module_name, std::string_view attribute);

/// Returns true for the short list of classes and functions that PyTorch's and numpy's own data is made of. They do
/// nothing but build that data. Only exact names match.
bool is_harmless_global(std::string_view module_name, std::string_view attribute);

}  // namespace shardmesh::pickle
