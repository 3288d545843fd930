// SPDX-License-Identifier: Apache-2.0
// The last words of every command that writes.
#pragma once
#include <string>

import shardmesh;

namespace tool {

/// Notes and problems on stderr; on success a last line on stdout with tensors and bytes written, the file of objects
/// beside them, and what was skipped and excluded; or with --json a document of the same, also of a failure. Returns
/// the exit status.
int print_report(const shardmesh::save_report& report, const std::string& destination, shardmesh::target_format to);

}  // namespace tool
