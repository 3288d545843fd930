// SPDX-License-Identifier: Apache-2.0
// Not exported: the names of pickle's opcodes, for error messages.
module shardmesh.pickle:opcode;

import shardmesh.std;

namespace shardmesh::pickle {

/// Returns an opcode's name, such as "BINUNICODE8", or "an unknown opcode".
std::string_view opcode_name(unsigned char opcode);

}  // namespace shardmesh::pickle
