// SPDX-License-Identifier: Apache-2.0
// Locates a tensor's bytes in a source, and reads any box of it. Every format's reader uses it, so that strides, byte
// order, and PyTorch's lazy conjugation and negation are handled in one place. `torch_file::item` and `safetensors`
// find the position of the bytes.
export module shardmesh.checkpoint_core:stored_tensor;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;
import :file_maps;

export namespace shardmesh {

/// A tensor inside a byte source. All numbers were checked against the source when it was made: every element lies in
/// [begin, begin + size_bytes).
struct stored_tensor {
  std::int64_t begin = 0;       // byte offset of the storage in its source
  std::int64_t size_bytes = 0;  // size of the storage, decoded
  dtype type = dtype::undefined;
  extents sizes;
  extents strides;                  // elements; 0 for expanded dimensions
  std::int64_t storage_offset = 0;  // elements from `begin` to the element with index 0
  bool swap_bytes = false;          // stored in the other byte order
  bool conjugate = false;           // PyTorch's lazy bits: the stored values are the conjugate, or the negative
  bool negative = false;
};

/// Returns a tensor that is stored row-major without gaps.
stored_tensor contiguous_stored_tensor(dtype type, const extents& sizes, std::int64_t begin, std::int64_t size_bytes);

struct read_options {
  /// Staging memory per call, and at least 16 MiB for a source on a server. Runs shorter than `min_run_bytes` are not
  /// read one by one: a single read covers them.
  std::int64_t staging_bytes = 1 << 20;
  std::int64_t min_run_bytes = 4096;
  /// Copies a box out of a mapping of its file when a read would fetch whole rows but use only a little of each. The
  /// reader keeps the mapping. Meant for a process that loads columns for one rank after another from one reader. It
  /// adds no memory: the mapped pages are the system's cache. Each copy first checks the file's length: a shorter file
  /// is errc::io. A file that becomes shorter during a copy ends the process (SIGBUS), as with `map_tensor`, so this is
  /// off by default. Ignored for bytes that do not lie in a file as they are.
  bool map_rows = false;
};

/// Returns the number of bytes that `read_box` would read for this box.
std::int64_t read_cost_bytes(const stored_tensor& tensor, const box& part, const read_options& options = {});

/// Fills `to` with the elements of `part`, a box in the tensor's own indices. `to` has the sizes of `part`, any
/// strides, and any dtype that `copy` converts to. Rows that are contiguous in the source and in `to`, and need no
/// conversion, are read straight into `to`.
/// \param maps  the mapped files, for `map_rows`; null: no file is mapped
/// \errors those of the source and of `copy`; errc::out_of_bounds when `part` extends beyond the tensor;
///         errc::unaligned for a part of a sub-byte tensor
/// Cost: at most 1.25 times the part's bytes when its runs in the source are `min_run_bytes` or longer. From a source
/// on a server, gaps of fewer bytes than `bytes_per_request` are read as well; `min_run_bytes` has no effect.
result<void> read_box(const byte_source& source, const stored_tensor& tensor, const box& part, const tensor_view& to,
                      const read_options& options = {}, file_maps* maps = nullptr);

}  // namespace shardmesh
