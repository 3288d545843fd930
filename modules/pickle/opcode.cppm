// SPDX-License-Identifier: Apache-2.0
// Not exported: the names of pickle's opcodes, for errors.
module shardmesh.pickle:opcode;

import shardmesh.std;

namespace shardmesh::pickle {

/// "BINUNICODE8"; "an unknown opcode".
std::string_view opcode_name(unsigned char opcode);

}  // namespace shardmesh::pickle
