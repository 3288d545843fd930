// SPDX-License-Identifier: Apache-2.0
// Not exported: the text of a record's name.
module shardmesh.npz:member_name;

import shardmesh.std;
import shardmesh.storage;

namespace shardmesh::npz {

// Returns the name of a record as numpy.load has it. A name with the flag for UTF-8 is returned as it is stored. Any
// other name is in code page 437, of which ASCII is the first half.
// Source: zipfile.ZipFile._RealGetContents of Python; section 4.4.4 and appendix D of PKWARE's APPNOTE
std::string member_name(const zip_record& record);

}  // namespace shardmesh::npz
