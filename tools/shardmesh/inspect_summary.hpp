// SPDX-License-Identifier: Apache-2.0
// What `inspect` says before its list.
#pragma once
#include <string>

#include "inspect_json.hpp"
#include "out_buffer.hpp"

import shardmesh;

namespace tool {

/// Whether the shape is known: of a wrapping tensor inside a .pt file its class is all that is.
inline bool has_known_shape(const shardmesh::tensor_entry& tensor) {
  return tensor.opaque_type.empty() || tensor.chunk_count > 0;
}

/// "float32", "quint8", "-" for what is not known.
std::string type_text(const shardmesh::tensor_entry& tensor);

/// Format, counts, parameters, bytes by dtype, ranks, keys, and what the files' writers attached.
void print_summary(out_buffer& out, const shardmesh::checkpoint_reader& reader, const shown_entries& shown);

}  // namespace tool
