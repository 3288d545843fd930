// SPDX-License-Identifier: Apache-2.0
// Not exported: maps names of Python 2 to names of Python 3.
module shardmesh.pickle:old_names;

import shardmesh.std;

namespace shardmesh::pickle {

struct renamed_global {
  std::string_view module_name;
  std::string_view name;
};

/// Returns the name that Python 3 looks up for this name in a pickle of protocol 0, 1, or 2: {"dbm", "open"} for
/// "anydbm" and "open". Returns nothing when the name is unchanged.
/// Source: CPython's _compat_pickle, IMPORT_MAPPING and NAME_MAPPING (without the classes of the module "exceptions").
std::optional<renamed_global> renamed_in_python3(std::string_view module_name, std::string_view name);

}  // namespace shardmesh::pickle
