// SPDX-License-Identifier: Apache-2.0
// Lays out a safetensors file: its header and the place of each tensor. Does no I/O: the caller writes the bytes.
export module shardmesh.safetensors:writer;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh::safetensors {

struct tensor {
  std::string name;
  dtype type = dtype::undefined;
  extents shape;
};

/// The layout of a file. The tensors tile the data: tensor i takes [begins[i], begins[i] + its bytes) without padding.
struct file_layout {
  std::string header;                // the file's first bytes: 8-byte length, JSON, spaces up to a multiple of 8
  std::vector<std::int64_t> begins;  // absolute, one per given tensor
  std::vector<std::size_t> order;    // indices of the given tensors in file order
  std::int64_t size_bytes = 0;       // of the whole file
};

/// Lists every problem that keeps these tensors out of a safetensors file, one error per key. The errors are
/// errc::unsupported (a dtype, a name that is not UTF-8, the reserved name "__metadata__", or a sub-byte tensor that
/// does not fill whole bytes), errc::duplicate_key, and errc::overflow. Without problems, `safetensors::layout_file`
/// can only fail for the metadata or the total size.
std::vector<error> problems_of(std::span<const tensor> tensors);

/// Orders the tensors as the Rust writer does (dtype descending, so that all data stays aligned, then name) and makes
/// the header. A float4_e2m1fn_x2 is written as F4 with twice the last size.
/// \errors the first of `safetensors::problems_of`, with the other keys in its message; errc::unsupported for metadata
///         that is not UTF-8 or a header beyond 100,000,000 bytes; errc::duplicate_key in metadata; errc::overflow of
///         the file's size.
/// Cost: O(n log n).
result<file_layout> layout_file(std::span<const tensor> tensors,
                                std::span<const std::pair<std::string, std::string>> metadata = {});

}  // namespace shardmesh::safetensors
