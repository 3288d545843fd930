// SPDX-License-Identifier: Apache-2.0
// The summary that `inspect` prints before its list.
#pragma once
#include <string>

#include "inspect_json.hpp"
#include "out_buffer.hpp"

import shardmesh;

namespace tool {

/// Whether the shape is known. For a wrapping tensor inside a .pt file, only its class is known.
inline bool has_known_shape(const shardmesh::tensor_entry& tensor) {
  return tensor.opaque_type.empty() || tensor.chunk_count > 0;
}

/// Returns "float32", "quint8", or "-" if unknown.
std::string type_text(const shardmesh::tensor_entry& tensor);
/// Returns the type of the quantized blocks in which a file holds the tensor: "Q4_K"; empty if it holds its elements.
std::string block_type_of(const shardmesh::catalog& contents, const shardmesh::tensor_entry& tensor);
/// Returns the type with that of the blocks: "float32 (Q4_K)".
std::string type_text(const shardmesh::catalog& contents, const shardmesh::tensor_entry& tensor);

/// Prints format, counts, parameters, bytes by dtype, ranks, keys, and the texts that the files' writers attached.
void print_summary(out_buffer& out, const shardmesh::checkpoint_reader& reader, const shown_entries& shown);

}  // namespace tool
