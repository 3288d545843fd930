// SPDX-License-Identifier: Apache-2.0
// The final report of every command that writes.
#pragma once
#include <string>

import shardmesh;

namespace tool {

/// Prints notes, or the problems of a failure, on stderr. On success, prints a last line on stdout: tensors and bytes
/// written, the file of objects beside them, and entries skipped and excluded. With --json, prints the same as a
/// document, also after a failure. Returns the exit status.
int print_report(const shardmesh::result<shardmesh::save_report>& saved, const std::string& destination,
                 shardmesh::target_format to);

}  // namespace tool
