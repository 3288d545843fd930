// SPDX-License-Identifier: Apache-2.0
// Lays out a safetensors file: its header and where each tensor goes. Does no I/O: the caller writes the bytes.
export module shardmesh.safetensors:writer;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh::safetensors {

struct tensor {
  std::string name;
  dtype type = dtype::undefined;
  extents shape;
};

/// What to write where. The data area is tiled: tensor i takes [begins[i], begins[i] + its bytes), no padding.
struct file_layout {
  std::string header;                // the file's first bytes: 8-byte length, JSON, spaces up to a multiple of 8
  std::vector<std::int64_t> begins;  // absolute, one per given tensor
  std::vector<std::size_t> order;    // given tensors in file order
  std::int64_t size_bytes = 0;       // of the whole file
};

/// Everything that keeps these tensors out of a safetensors file, one error per key: errc::unsupported (dtype, or a
/// name that is not UTF-8, or a sub-byte tensor that does not fill whole bytes), errc::duplicate_key,
/// errc::invalid_argument (the reserved name "__metadata__"), errc::overflow. Empty when `safetensors::layout_file`
/// will succeed.
std::vector<error> problems_of(std::span<const tensor> tensors);

/// Orders the tensors as the Rust writer (dtype descending, so that everything stays aligned, then name) and makes the
/// header. float4_e2m1fn_x2 is written as F4 with twice the last size.
/// \errors the first of `safetensors::problems_of`, with the other keys in its message; errc::unsupported for metadata
///         that is not UTF-8 or a header beyond 100,000,000 bytes; errc::duplicate_key in metadata.
/// Cost: O(n log n).
result<file_layout> layout_file(std::span<const tensor> tensors,
                                std::span<const std::pair<std::string, std::string>> metadata = {});

}  // namespace shardmesh::safetensors
