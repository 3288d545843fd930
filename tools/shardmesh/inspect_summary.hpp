// SPDX-License-Identifier: Apache-2.0
// What `inspect` says before its list.
#pragma once
#include "inspect_json.hpp"
#include "out_buffer.hpp"

import shardmesh;

namespace tool {

/// Format, counts, parameters, bytes by dtype, ranks, keys, and what the files' writers attached.
void print_summary(out_buffer& out, const shardmesh::checkpoint_reader& reader, const shown_entries& shown);

}  // namespace tool
