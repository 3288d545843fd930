// SPDX-License-Identifier: Apache-2.0
// Not exported: the names that Python 3 has for names of Python 2.
module shardmesh.pickle:old_names;

import shardmesh.std;

namespace shardmesh::pickle {

struct renamed_global {
  std::string_view module_name;
  std::string_view name;
};

/// What Python 3 looks up for this name in a pickle of protocol 0, 1 or 2: {"dbm", "open"} for "anydbm" and "open".
/// Nothing where that is the name itself.
/// Source: CPython's _compat_pickle, IMPORT_MAPPING and NAME_MAPPING (without the classes of the module "exceptions").
std::optional<renamed_global> renamed_in_python3(std::string_view module_name, std::string_view name);

}  // namespace shardmesh::pickle
